"""Check that keys of published views are unique, at a version of each table.

A Spark job takes half a second where there are only a few rows, so keys of small tables are counted by the driver. Those of
all other tables are counted by Spark together.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.inspect.health import check_tables
from relstate_dagster.jobs.targets.protocol import Target
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.sql_text import quoted

#: Tables read at the same time: in an object store most of it is waiting.
_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class KeyReport:
    """Number of duplicate keys in a published view: 0 is right.

    Parameters
    ----------
    version : of the view's table.
    """

    view: str
    version: int
    duplicated_keys: int


def check_keys(
    spark: SparkSession, warehouse: Warehouse, state: CatalogState, versions: Mapping[str, int | None]
) -> list[KeyReport]:
    """Count keys that occur more than once, view by view, in the given order.

    Parameters
    ----------
    versions : of the published table of each view; ``None``: that of the last epoch which the view has reached.

    Raises
    ------
    DeclarationError : there is no such view.
    EpochError : a view has no complete epoch.
    StateError : the last epoch of a view is not in its tables any more.
    """
    known = {view: _version(warehouse, state, view, version) for view, version in versions.items()}
    with ThreadPoolExecutor(_READERS) as pool:
        found = pool.map(_by_driver, map(warehouse.target, known), known.values())
        counts = dict(zip(known, found, strict=True))
    large = {view: known[view] for view, count in counts.items() if count is None}
    by_spark = _by_spark(spark, warehouse, large) if large else {}
    return [KeyReport(view, version, counts[view] or by_spark.get(view, 0)) for view, version in known.items()]


def _version(warehouse: Warehouse, state: CatalogState, name: str, version: int | None) -> int:
    view, versions = state.view(name), state.versions_at(name)
    if versions is None or versions.view_version is None:
        why = f": {view.problem.reason}" if view.problem else "; run it first"
        raise EpochError(f"view {name} has no complete epoch{why}")
    check_tables(warehouse, state, view)
    return versions.view_version if version is None else version


def _by_driver(target: Target, version: int) -> int | None:
    """Count keys that occur more than once, on the driver.

    ``None`` if the table is too large, or only Spark can read it.
    """
    rows = target.held_rows(version, [VIEW_KEY], run_limits().checked_bytes)
    if rows is None:
        return None
    keys = rows[VIEW_KEY]
    if pc.count_distinct(keys, mode="all").as_py() == rows.num_rows:
        return 0
    return int(pc.sum(pc.greater(keys.value_counts().field("counts"), 1)).as_py())


def _by_spark(spark: SparkSession, warehouse: Warehouse, versions: Mapping[str, int]) -> dict[str, int]:
    """As :func:`_by_driver`, of all tables in one job.

    Views without such a key are left out.
    """
    keys = [
        warehouse.target(view).rows(spark, version).select(F.lit(view).alias("view"), F.col(quoted(VIEW_KEY)).alias("key"))
        for view, version in versions.items()
    ]
    rows = reduce(DataFrame.union, keys).groupBy("view", "key").agg(F.count(F.lit(1)).alias("rows"))
    found = rows.where(F.col("rows") > 1).groupBy("view").agg(F.count(F.lit(1)).alias("keys")).collect()
    return {row["view"]: int(row["keys"]) for row in found}
