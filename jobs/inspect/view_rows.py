"""Rows of a published view as of an epoch, without hidden columns.

By Spark, or in memory without it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.inspect.health import check_tables
from relstate_dagster.jobs.inspect.snapshot import ViewSnapshot, snapshot
from relstate_dagster.jobs.operators.z_sets import columns_of


def epoch_of_run(state: CatalogState, run_id: str) -> int | None:
    """Newest complete epoch of a run; ``None`` if the catalog remembers none."""
    return max((epoch.epoch for epoch in state.epochs.values() if epoch.run_id == run_id), default=None)


def newest_epoch(state: CatalogState) -> int | None:
    """The newest complete epoch; ``None`` before the first."""
    return max(state.epochs, default=None)


def spark_rows(spark: SparkSession, warehouse: Warehouse, view: str, epoch: int | None = None) -> DataFrame:
    """A view as of an epoch, by default the newest.

    Rows are read when the frame is used.

    Raises
    ------
    DeclarationError : there is no such view.
    EpochError : it has not been built by then.
    """
    at, columns = _at(warehouse, view, epoch)
    return warehouse.target(at.view).rows(spark, at.version).select(*columns_of(columns))


def arrow_rows(warehouse: Warehouse, view: str, epoch: int | None = None) -> pa.Table | None:
    """As :func:`spark_rows`, all rows in memory, without Spark.

    ``None`` if only Spark can read the table.

    That is one whose columns have names that Parquet does not take.
    """
    at, columns = _at(warehouse, view, epoch)
    return warehouse.target(at.view).held_rows(at.version, columns)


def _at(warehouse: Warehouse, view: str, epoch: int | None) -> tuple[ViewSnapshot, list[str]]:
    state = warehouse.read()
    found: Mapping[str, ViewSnapshot] = snapshot(warehouse, [view], epoch).views
    entry = state.view(view)
    check_tables(warehouse, state, entry)
    return found[entry.name], [column.name for column in entry.plan.output]
