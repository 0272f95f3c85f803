"""The oracle: a view compared with its query run in full, both ways.

As bags, on the pinned inputs.
"""

from __future__ import annotations

import tempfile
import time

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.jobs.inspect.health import check_tables
from relstate_dagster.jobs.inspect.key_sample import sample_of
from relstate_dagster.jobs.inspect.nearly_equal import Difference, unmatched
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.planner.limits import before_limit
from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run, explained, is_of_a_value
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.jobs.view_epoch.reports import VerifyReport
from relstate_dagster.jobs.view_epoch.shown_rows import SHOWN_ROWS, ShownRows, as_texts
from relstate_dagster.jobs.view_epoch.view_epoch import full_query
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint
from relstate_dagster.state_lib.row_encoding import parts_of


def verify_view(
    spark: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry, sample: int | None = None
) -> VerifyReport:
    """Compare a view as of its last epoch with its query run in full.

    Floating-point columns are compared exactly first; only rows that then differ are compared within a relative
    tolerance of 1e-9, for sums whose order of addition no one has fixed. Of rows that a LIMIT's ORDER BY does not tell
    apart, any are right.

    Parameters
    ----------
    sample : how many keys of the view are compared; all rows are without it, and where no sample says anything.
    """
    started = time.perf_counter()
    last = view.last_epoch
    if last is None:
        why = f": {view.problem.reason}" if view.problem else "; run it first"
        return VerifyReport(view.name, False, 0, 0, 0, 0.0, f"it has no complete epoch{why}")
    try:
        found, keys = _difference(spark, warehouse, state, view, sample)
    except Exception as error:
        if ends_the_run(error) is not None:
            raise
        problem = f"it cannot be compared: {explained(view.name, last, error)}"
        return VerifyReport(view.name, False, 0, 0, last, time.perf_counter() - started, problem)
    columns = tuple(o.name for o in view.plan.output)
    return VerifyReport(
        view.name,
        found.missing == found.unexpected == 0,
        found.missing,
        found.unexpected,
        last,
        time.perf_counter() - started,
        sampled_keys=keys,
        has_expired=view.expiry.until is not None,
        missing=ShownRows(columns, found.missing_rows),
        unexpected=ShownRows(columns, found.unexpected_rows),
    )


def _difference(
    spark: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry, sample: int | None
) -> tuple[Difference, int | None]:
    """Missing and unexpected rows of a view at its epoch, and the keys compared."""
    assert view.last_epoch is not None
    epoch = state.epochs[view.last_epoch]
    inputs = EpochInputs(warehouse, state, view, epoch, epoch.versions, session=spark)
    if inputs.total_values() > run_limits().interpreted_values:
        return _difference_in(Workload.FULL, inputs, warehouse, state, sample)
    try:
        return _difference_in(Workload.SMALL, inputs, warehouse, state, sample)
    except (PySparkException, Py4JJavaError) as error:
        if not is_of_a_value(error):
            raise
    # What no rows ask for may be an error all the same: only adaptive execution, which is Spark's default, leaves it out.
    return _difference_in(Workload.FULL, inputs, warehouse, state, sample)


def _difference_in(
    workload: Workload, inputs: EpochInputs, warehouse: Warehouse, state: CatalogState, sample: int | None
) -> tuple[Difference, int | None]:
    view = inputs.view
    session = session_for(inputs.spark, view.settings, workload, warehouse.functions, is_local=warehouse.is_local)
    inputs = inputs.within(session)
    expected = full_query(inputs, session)
    actual = published_rows(session, warehouse, state, view).toDF(*[o.name for o in view.plan.output])
    sampled = None if sample is None else sample_of(expected, actual, view.plan, sample)
    if sampled is None:
        return compared(expected, actual, SHOWN_ROWS), None
    return compared(sampled.expected, sampled.actual, SHOWN_ROWS), sampled.keys


def recompute_seconds(spark: SparkSession, warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> float:
    """Run a view's query in full, write the result as Delta, and drop it.

    As of the view's last epoch.
    """
    if view.last_epoch is None:
        raise EpochError(f"view {view.name} has no epoch to recompute yet; run it first")
    session = session_for(spark, view.settings, Workload.FULL, warehouse.functions, is_local=warehouse.is_local)
    epoch = state.epochs[view.last_epoch]
    inputs = EpochInputs(warehouse, state, view, epoch, epoch.versions)
    names = [f"c{n}" for n in range(len(view.plan.output))]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        full_query(inputs, session).toDF(*names).write.format("delta").save(f"{folder}/view")
        return time.perf_counter() - started


def published_rows(
    session: SparkSession,
    warehouse: Warehouse,
    state: CatalogState,
    view: ViewEntry,
    *,
    version: int | None = None,
    with_key: bool = False,
) -> DataFrame:
    """The view as readers see it, without hidden columns.

    As of the last complete epoch.

    Parameters
    ----------
    version : of an earlier epoch's table.
    with_key : with the hidden key as the last column.
    """
    versions = state.versions_at(view.name)
    if versions is None or versions.view_version is None:
        raise EpochError(f"view {view.name} has no complete epoch yet; run it first")
    check_tables(warehouse, state, view)
    rows = warehouse.target(view.name).rows(session, versions.view_version if version is None else version)
    names = [*(o.name for o in view.plan.output), *([VIEW_KEY] if with_key else [])]
    return rows.select(*columns_of(names))


def difference(expected: DataFrame, actual: DataFrame) -> tuple[int, int]:
    """As :func:`bag_difference`, of a query's frame.

    Where it ends in LIMIT, ties may fall either way.
    """
    found = compared(expected, actual)
    return found.missing, found.unexpected


def compared(expected: DataFrame, actual: DataFrame, shown: int = 0) -> Difference:
    """As :func:`difference`, with some of the rows that differ.

    Ties of a LIMIT can be among them.
    """
    names = [f"_c{n}" for n in range(len(expected.columns))]
    found = compared_bags(expected, actual, shown)
    missing, unexpected = found.missing, found.unexpected
    open_choice = before_limit(expected) if missing and missing == unexpected else None
    if open_choice is None:
        return found
    candidates, sorted_by = open_choice
    keys = [names[position] for position in sorted_by]
    picked, right = actual.toDF(*names), expected.toDF(*names)
    if keys and bag_difference(right.select(keys), picked.select(keys)) != (0, 0):
        return found
    _, not_candidates = bag_difference(candidates, picked)
    return Difference() if not not_candidates else found


def bag_difference(expected: DataFrame, actual: DataFrame) -> tuple[int, int]:
    """Numbers of rows missing from, and unexpected in, ``actual``, duplicates counted."""
    found = compared_bags(expected, actual)
    return found.missing, found.unexpected


def compared_bags(expected: DataFrame, actual: DataFrame, shown: int = 0) -> Difference:
    """As :func:`bag_difference`, with up to ``shown`` rows of each side.

    Each row is shown once.
    """
    names = [f"_c{n}" for n in range(len(expected.columns))]
    has_float = any(
        isinstance(part, T.FloatType | T.DoubleType) for f in expected.schema.fields for part in parts_of(f.dataType)
    )
    one = F.lit(1).cast("bigint")
    stacked = (
        expected.toDF(*names).withColumn("_n", one).union(actual.toDF(*names).withColumn("_n", -one))
    )  # fmt: skip
    differing = stacked.groupBy(*names).agg(F.sum("_n").alias("_n")).where(F.col("_n") != 0)
    if has_float:
        held = local_checkpoint(differing)  # the queries are run once, however often their difference is looked at
        return Difference() if held.isEmpty() else unmatched(held, names, "_n", as_texts(held, names), shown)
    sums = differing.agg(
        F.coalesce(F.sum(F.greatest("_n", F.lit(0))), F.lit(0)).alias("missing"),
        F.coalesce(F.sum(F.greatest(-F.col("_n"), F.lit(0))), F.lit(0)).alias("unexpected"),
    ).collect()[0]
    missing, unexpected = int(sums["missing"]), int(sums["unexpected"])
    if not shown or not (missing or unexpected):
        return Difference(missing, unexpected)
    cells = differing.select((F.col("_n") > 0).alias("misses"), F.array(*as_texts(differing, names)).alias("cells"))
    place = F.row_number().over(Window.partitionBy("misses").orderBy("cells"))
    rows = cells.withColumn("place", place).where(F.col("place") <= shown).orderBy("place").collect()
    some = {side: tuple(tuple(row["cells"]) for row in rows if row["misses"] is side) for side in (True, False)}
    return Difference(missing, unexpected, some[True], some[False])
