"""A script session that also shows the state tables of views."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.jobs.inspect.state_rows import state_rows
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.table_schema import StateKind, StateTableDesc
from tests.epoch.scripts import Script


class Shown(Script):
    """Statements, and what they leave in state."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self._spark = spark

    def tables(self, view: str, *kinds: StateKind) -> list[StateTableDesc]:
        """The state tables of a view, of some kinds or of all."""
        return [t for t in self.warehouse.read().views[view].tables if not kinds or t.schema.kind in kinds]

    def state(self, view: str, table: StateTableDesc) -> list[tuple]:
        """The rows of a state table, in key order; the weight last where rows have one."""
        rows = state_rows(self._spark, self.warehouse, view, table.table_id)
        columns = [c.name for c in table.schema.columns]
        return [tuple(row) for row in rows.select(*columns, *([WEIGHT] if WEIGHT in rows.columns else [])).collect()]

    def key(self, table: StateTableDesc) -> list[str]:
        """The storage primary key below ``table_id``; ``desc`` where it is descending."""
        return [p.column + (" desc" if p.descending else "") for p in table.schema.storage_key]
