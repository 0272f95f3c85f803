"""The rows of a view's state tables as people read them: merged, in key order, under their own names."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.warehouse import Warehouse
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore


def state_rows(spark: SparkSession, warehouse: Warehouse, view: str, table_id: int) -> DataFrame:
    """The rows of one state table as of the view's last epoch.

    Raises
    ------
    DeclarationError : there is no such view or table, or the view has no epoch yet.
    """
    catalog = warehouse.read()
    entry = catalog.view(view)
    if table_id not in {d.table_id for d in entry.tables}:
        raise DeclarationError(f"view {view} has no state table {table_id}; it has {[d.table_id for d in entry.tables]}")
    versions = catalog.versions_at(view)
    if versions is None:
        raise DeclarationError(f"view {view} has no epoch yet; run it first")
    store = StateStore(spark, StateFiles(warehouse.state_path(entry)), entry.tables)
    return store.storage_table(table_id, version=versions.state_version, epoch=entry.last_epoch).scan()
