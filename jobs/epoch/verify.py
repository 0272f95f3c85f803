"""The oracle: a view compared, as a bag and both ways, with its query run in full by Spark on the pinned inputs."""

from __future__ import annotations

import tempfile
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.epoch.explained import ends_the_run, explained
from relstate_dagster.jobs.epoch.health import check_tables
from relstate_dagster.jobs.epoch.inputs import EpochInputs
from relstate_dagster.jobs.epoch.nearly_equal import unmatched
from relstate_dagster.jobs.epoch.reports import VerifyReport
from relstate_dagster.jobs.epoch.sessions import Workload, session_for
from relstate_dagster.jobs.epoch.view_epoch import full_query
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.planner.limits import before_limit
from relstate_dagster.jobs.warehouse import Warehouse
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.sizing import sizing
from relstate_dagster.state_lib.sql_text import quoted


def verify_view(spark: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> VerifyReport:
    """Compare a view as of its last epoch with its query run in full.

    Floating-point columns are compared exactly first; only rows that then differ are compared within a relative
    tolerance of 1e-9, for sums whose order of addition no one has fixed. Of rows that a LIMIT's ORDER BY does not tell
    apart, any are right.
    """
    started = time.perf_counter()
    last = view.last_epoch
    if last is None:
        why = f": {view.problem.reason}" if view.problem else "; run it first"
        return VerifyReport(view.name, False, 0, 0, 0, 0.0, f"it has no complete epoch{why}")
    try:
        missing, unexpected = _difference(spark, warehouse, state, view)
    except Exception as error:
        if ends_the_run(error) is not None:
            raise
        problem = f"it cannot be compared: {explained(view.name, last, error)}"
        return VerifyReport(view.name, False, 0, 0, last, time.perf_counter() - started, problem)
    return VerifyReport(view.name, missing == unexpected == 0, missing, unexpected, last, time.perf_counter() - started)


def _difference(spark: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> tuple[int, int]:
    """Rows missing and unexpected in a view, as of the epoch it has reached."""
    assert view.last_epoch is not None
    epoch = state.epochs[view.last_epoch]
    inputs = EpochInputs(spark, warehouse, state, view, epoch, epoch.versions)
    workload = Workload.SMALL if inputs.sizes.total_bytes() <= sizing().small_epoch_bytes else Workload.FULL
    session = inputs.spark = session_for(spark, view.settings, workload, warehouse.functions, is_local=warehouse.is_local)
    expected = full_query(inputs, session)
    actual = published_rows(session, warehouse, state, view)
    names = [o.name for o in view.plan.output]
    return difference(expected, actual.toDF(*names))


def recompute_seconds(spark: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> float:
    """Run a view's query in full as of its last epoch, write the result as a Delta table, and drop it again."""
    if view.last_epoch is None:
        raise EpochError(f"view {view.name} has no epoch to recompute yet; run it first")
    session = session_for(spark, view.settings, Workload.FULL, warehouse.functions, is_local=warehouse.is_local)
    epoch = state.epochs[view.last_epoch]
    inputs = EpochInputs(session, warehouse, state, view, epoch, epoch.versions)
    names = [f"c{n}" for n in range(len(view.plan.output))]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        full_query(inputs, session).toDF(*names).write.format("delta").save(f"{folder}/view")
        return time.perf_counter() - started


def published_rows(session: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> DataFrame:
    """The view as a reader sees it: as of the last complete epoch, without hidden columns."""
    versions = state.versions_at(view.name)
    if versions is None or versions.view_version is None:
        raise EpochError(f"view {view.name} has no complete epoch yet; run it first")
    check_tables(warehouse, state, view)
    reader = session.read.format("delta").option("versionAsOf", versions.view_version)
    return reader.load(warehouse.view_path(view.name)).select(*columns_of([o.name for o in view.plan.output]))


def difference(expected: DataFrame, actual: DataFrame) -> tuple[int, int]:
    """As :func:`bag_difference`, for the frame of a query: where it ends in LIMIT, ties may fall either way."""
    names = [f"_c{n}" for n in range(len(expected.columns))]
    missing, unexpected = bag_difference(expected, actual)
    open_choice = before_limit(expected) if missing and missing == unexpected else None
    if open_choice is None:
        return missing, unexpected
    candidates, sorted_by = open_choice
    keys = [names[position] for position in sorted_by]
    picked, right = actual.toDF(*names), expected.toDF(*names)
    if keys and bag_difference(right.select(keys), picked.select(keys)) != (0, 0):
        return missing, unexpected
    _, not_candidates = bag_difference(candidates, picked)
    return (0, 0) if not not_candidates else (missing, unexpected)


def bag_difference(expected: DataFrame, actual: DataFrame) -> tuple[int, int]:
    """How many rows are missing from, and unexpected in, ``actual``, duplicates counted."""
    names = [f"_c{n}" for n in range(len(expected.columns))]
    has_float = any("float" in t or "double" in t for _, t in expected.dtypes)
    one = F.lit(1).cast("bigint")
    stacked = (
        expected.toDF(*names).withColumn("_n", one).union(actual.toDF(*names).withColumn("_n", -one))
    )  # fmt: skip
    differing = stacked.groupBy(*names).agg(F.sum("_n").alias("_n")).where(F.col("_n") != 0)
    if not has_float:
        sums = differing.agg(
            F.coalesce(F.sum(F.greatest("_n", F.lit(0))), F.lit(0)).alias("missing"),
            F.coalesce(F.sum(F.greatest(-F.col("_n"), F.lit(0))), F.lit(0)).alias("unexpected"),
        ).collect()[0]
        return int(sums["missing"]), int(sums["unexpected"])
    held = differing.localCheckpoint()  # the queries are run once, however often their difference is looked at
    return (0, 0) if held.isEmpty() else unmatched(held, names, "_n")


def duplicate_keys(spark: SparkSession, warehouse: Warehouse, view: ViewEntry) -> int:
    """Keys of the published table that occur more than once."""
    rows = spark.read.format("delta").load(warehouse.view_path(view.name))
    return rows.groupBy(quoted(VIEW_KEY)).count().where(F.col("count") > 1).count()
