"""State table of an operator: committed rows merged with this epoch's operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import EPOCH, STATE_WEIGHT
from relstate_dagster.state_lib.literals import literal
from relstate_dagster.state_lib.mem_table import MemTable
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.storage_table import StorageTable, merged_in_order
from relstate_dagster.state_lib.table_schema import StateTableDesc


class StateTable:
    """Reads and writes of one table during one epoch; no Spark action.

    Parameters
    ----------
    spark : the session of the epoch's frames.
    storage : the table as of the epochs before.
    epoch : the epoch that is being computed.
    """

    def __init__(self, spark: SparkSession, storage: StorageTable, epoch: int) -> None:
        self.storage = storage
        self.epoch = epoch
        self.mem_table = MemTable(storage.desc)
        self._spark = spark

    @property
    def desc(self) -> StateTableDesc:
        """The table's identity and facts."""
        return self.storage.desc

    # Reads: the MemTable's operations are a run of the epoch, so merging makes them win.

    def scan(self, prefix: Mapping[str, Any] | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """The merged rows, uncommitted operations included, in key order; see :meth:`StorageTable.scan`."""
        wanted = self.storage.column_names if columns is None else list(columns)
        return merged_in_order(self._runs(prefix or {}, self.storage.needed(wanted)), self.desc, wanted)

    def _runs(self, prefix: Mapping[str, Any], columns: Sequence[str]) -> DataFrame:
        committed = self.storage.prefix_runs(prefix, columns)
        return committed if self.mem_table.is_empty else committed.union(self._own_runs(prefix, columns))

    def _own_runs(self, prefix: Mapping[str, Any], columns: Sequence[str]) -> DataFrame:
        runs = self.mem_table.runs(self.epoch)
        for name, value in prefix.items():
            typed = literal(value, self.desc.schema.column_type(name))
            if typed is None:
                # No literal of this type: a one-row frame holds the value instead.
                wanted = self._spark.createDataFrame([(value,)], f"`_prefix` {self.desc.schema.column_type(name)}")
                runs = runs.join(wanted, F.col(quoted(name)).eqNullSafe(F.col("_prefix")), "left_semi")
            else:
                runs = runs.where(F.col(quoted(name)).eqNullSafe(typed))
        return runs.select(*[F.col(quoted(name)) for name in columns], STATE_WEIGHT, EPOCH)

    # Writes.

    def write(self, change_set: DataFrame, carrying: Mapping[str, StateTableDesc] | None = None) -> None:
        """Take a whole change set; see :meth:`MemTable.write`. Not checked against the state."""
        self.mem_table.write(change_set, carrying)
