"""The state table an operator works with: committed rows with the epoch's own operations merged over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from state_lib.constants import EPOCH, STATE_WEIGHT
from state_lib.errors import StateError
from state_lib.literals import literal
from state_lib.mem_table import MemTable
from state_lib.merge import merge_runs
from state_lib.row_encoding.spark_codec import quoted
from state_lib.storage_table import StorageTable, merged_in_order, one_row
from state_lib.table_schema import MergeRule, StateTableDesc
from state_lib.vnode import row_vnode


class StateTable:
    """Reads and writes of one table during one epoch (seed ``Relational Table Layer``).

    Parameters
    ----------
    spark : the session of the epoch's frames.
    storage : the table as of the epochs before.
    epoch : the epoch that is being computed.
    append : commits MemTables; given by the store.

    Notes
    -----
    Operations on change sets run no Spark action. Those on single rows do: they are for tests, tools and repairs.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage: StorageTable,
        epoch: int,
        append: Callable[..., int],
    ) -> None:
        self.storage = storage
        self.epoch = epoch
        self.mem_table = MemTable(storage.desc)
        self._spark = spark
        self._append = append

    @property
    def desc(self) -> StateTableDesc:
        """The table's identity and facts."""
        return self.storage.desc

    # Reads: the MemTable's operations are a run of the epoch, so merging makes them win.

    def get_row(self, *key: Any) -> Row | None:
        """The row of a key, uncommitted operations included."""
        prefix = self.storage.key_prefix(key)
        if self.desc.schema.merge is MergeRule.NEWEST:
            known, row = self.mem_table.find(key)
            if known:
                return row
        runs = self._runs(prefix, self.storage.column_names)
        return one_row(merge_runs(runs, self.desc.schema).collect(), self.place(key))

    def scan(self, prefix: Mapping[str, Any] | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """The merged rows, uncommitted operations included, in key order; see :meth:`StorageTable.scan`."""
        wanted = self.storage.column_names if columns is None else list(columns)
        return merged_in_order(self._runs(prefix or {}, self.storage.needed(wanted)), self.desc, wanted)

    def _runs(self, prefix: Mapping[str, Any], columns: Sequence[str]) -> DataFrame:
        committed = self.storage.prefix_runs(prefix, columns)
        return committed if self.mem_table.is_empty else committed.union(self._own_runs(prefix, columns))

    def _own_runs(self, prefix: Mapping[str, Any], columns: Sequence[str]) -> DataFrame:
        runs = self.mem_table.runs(self._spark, self.epoch)
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

    def insert(self, row: Sequence[Any] | Mapping[str, Any]) -> None:
        """Insert a row.

        Raises
        ------
        StateError
            Its key exists.
        """
        values = self._row(row)
        existing = self._current(values)
        if existing is not None:
            raise StateError(f"{self._place_of(values)}: inserted, but it exists: {tuple(existing)}")
        self.mem_table.put(values, 1)

    def delete(self, row: Sequence[Any] | Mapping[str, Any]) -> None:
        """Delete a row; of its values only the key counts, the stored row is what goes.

        Raises
        ------
        StateError
            Its key does not exist.
        """
        values = self._row(row)
        existing = self._current(values)
        if existing is None:
            raise StateError(f"{self._place_of(values)}: deleted, but it does not exist")
        self.mem_table.put(self._own_columns(existing), -1)

    def update(self, row: Sequence[Any] | Mapping[str, Any]) -> None:
        """Replace the row of the same key.

        Raises
        ------
        StateError
            Its key does not exist.
        """
        values = self._row(row)
        existing = self._current(values)
        if existing is None:
            raise StateError(f"{self._place_of(values)}: updated, but it does not exist")
        if self.desc.schema.merge is MergeRule.SUM:
            self.mem_table.put(self._own_columns(existing), -1)
        self.mem_table.put(values, 1)

    def add(self, row: Sequence[Any] | Mapping[str, Any], weight: int) -> None:
        """Add to the weight of a row of a ``SUM`` table; not checked against the state.

        Raises
        ------
        StateError
            The newest epoch wins in this table, so weights mean nothing in it.
        """
        values = self._row(row)
        if self.desc.schema.merge is not MergeRule.SUM:
            raise StateError(f"{self._place_of(values)}: weights are added in a table where the newest epoch wins")
        self.mem_table.put(values, weight)

    def commit(self, epoch: int) -> int:
        """Commit this table alone and go on with the next epoch.

        The runner commits all tables of a view in one append instead (``StateStore.append``).

        Returns
        -------
        int
            The Delta version that holds the epoch.

        Raises
        ------
        StateError
            The epoch is not the one this table is open for.
        """
        if epoch != self.epoch:
            raise StateError(f"{self.storage.place()}: commit of epoch {epoch}, but epoch {self.epoch} is open")
        version = self._append(
            epoch,
            [self.mem_table],
            txn_app_id=f"state table {self.desc.table_id}",
            txn_version=epoch,
            user_metadata=json.dumps({"table_id": self.desc.table_id, "epoch": epoch}),
        )
        self.mem_table = MemTable(self.desc)
        self.storage = self.storage.at_version(version)
        self.epoch = epoch + 1
        return version

    def place(self, key: Sequence[Any]) -> str:
        """How messages name a key of this table: label, table_id, vnode, decoded key and epoch."""
        names = [part.column for part in self.desc.schema.storage_key]
        values = dict(zip(names, key, strict=False))
        try:
            vnode: int | str = row_vnode(self.desc.schema, self.desc.vnode_count, values)
        except KeyError:
            vnode = "unknown"
        return (
            f"state table {self.desc.schema.label} (table_id {self.desc.table_id}, vnode {vnode}), "
            f"key {dict(zip(names, key, strict=False))}, epoch {self.epoch}"
        )

    def _place_of(self, values: tuple[Any, ...]) -> str:
        return self.place(self.mem_table.key_of(values))

    def _current(self, values: tuple[Any, ...]) -> Row | None:
        return self.get_row(*self.mem_table.key_of(values))

    def _own_columns(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[column.name] for column in self.desc.schema.columns)

    def _row(self, row: Sequence[Any] | Mapping[str, Any]) -> tuple[Any, ...]:
        """A row in the order of the table's columns."""
        names = [column.name for column in self.desc.schema.columns]
        if isinstance(row, Mapping):
            if set(row) != set(names):
                raise StateError(f"{self.storage.place()}: a row of columns {sorted(row)}, not {names}")
            return tuple(row[name] for name in names)
        if len(row) != len(names):
            raise StateError(f"{self.storage.place()}: a row of {len(row)} values for the columns {names}")
        return tuple(row)
