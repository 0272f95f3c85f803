"""Read-only side of a state table, as of a version and an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import EPOCH, EPOCH_COLUMN, KEY, STATE_WEIGHT, WEIGHT_COLUMN
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.key_rows import KeyRow
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.literals import literal
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.merge import key_order, merge_runs
from relstate_dagster.state_lib.row_encoding import encode_row, encoded_parts
from relstate_dagster.state_lib.slots import Slot, TableSlots
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.table_schema import MergeRule, StateTableDesc

_LOOKUP = "_lookup_"


class StorageTable:
    """Committed rows of one state table.

    It reads only wanted columns, and only its own partitions.

    Parameters
    ----------
    desc : the table.
    slots : where its columns are stored.
    state : gives the stored rows of some tables at a version.
    row_count : counts them, from the log.
    version : the Delta version to read; None reads the newest.
    epoch : rows of later epochs are not seen; None sees all of the version.
    """

    def __init__(
        self,
        desc: StateTableDesc,
        slots: TableSlots,
        state: Callable[[Sequence[int], int | None, LookupKeys | None, Slot | None, KeyRow | None], DataFrame],
        row_count: Callable[[Sequence[int], int | None], int | None],
        *,
        version: int | None = None,
        epoch: int | None = None,
    ) -> None:
        self.desc = desc
        self.slots = slots
        self.version = version
        self.epoch = epoch
        self._state = state
        self._row_count = row_count

    @property
    def column_names(self) -> list[str]:
        """All columns of a row."""
        return [column.name for column in self.desc.schema.columns]

    def row_count_of(self, table_ids: Sequence[int]) -> int | None:
        """Rows of several tables, of any epoch; ``None`` if not logged.

        As :meth:`stored_of` has them.
        """
        return self._row_count(table_ids, self.version)

    def stored(self) -> DataFrame:
        """The table's rows as they are stored: vnode, key, epoch, weight and slots."""
        return self.stored_of([self.desc.table_id])

    def stored_of(
        self, table_ids: Sequence[int], lookup_keys: LookupKeys | None = None, key_row: KeyRow | None = None
    ) -> DataFrame:
        """Stored rows of several tables of one Delta table.

        As of the same version and epoch.

        ``lookup_keys`` names a column that all of them have in the same slot; files and pages that cannot have one of the
        keys are skipped, as are files without ``key_row``. Rows with other keys may come along.
        """
        slot = None if lookup_keys is None else self.slots.of(lookup_keys.column).slot
        rows = self._state(table_ids, self.version, lookup_keys, slot, key_row)
        return rows if self.epoch is None else rows.where(f"{EPOCH_COLUMN} <= {self.epoch}L")

    def runs(self, columns: Sequence[str] | None = None, lookup_keys: LookupKeys | None = None) -> DataFrame:
        """Unmerged rows of all epochs.

        With ``lookup_keys``, at least those with one of its values.

        Returns
        -------
        DataFrame
            ``columns`` (all by default), ``_state_weight`` and ``_epoch``. Linear readers may use it unmerged.
        """
        stored = self.stored_of([self.desc.table_id], lookup_keys)
        return self._runs(stored, self.column_names if columns is None else columns)

    def lookup(
        self,
        keys: DataFrame,
        on: Sequence[tuple[str, str]],
        null_safe: bool | Sequence[bool] = False,
        columns: Sequence[str] | None = None,
        *,
        hint: str | None = "broadcast",
        lookup_keys: LookupKeys | None = None,
    ) -> DataFrame:
        """The unmerged rows whose columns equal those of some key; no Spark action.

        Parameters
        ----------
        keys : the keys, duplicates allowed.
        on : pairs of a state column and the column of ``keys`` it equals. At least one.
        null_safe : whether NULL equals NULL, for all pairs or for each.
        columns : the columns wanted; all by default.
        hint : ``broadcast`` sends the keys to every task, so that the state is read where it lies and not shuffled.
            ``shuffle_hash`` needs no job of its own and suits state that one task reads. None leaves it to Spark.
        lookup_keys : the values of one of the state's columns in ``on``, where they are known.

        Returns
        -------
        DataFrame
            ``columns``, ``_state_weight`` and ``_epoch``. The typed slots are joined, not the encoded key: at 6 M rows
            reading the key column was three quarters of a lookup.
        """
        if not on:
            raise StateError(f"{self.place()}: a lookup needs a column; use runs() for all rows")
        wanted = self.column_names if columns is None else list(columns)
        safe = [null_safe] * len(on) if isinstance(null_safe, bool) else list(null_safe)
        # Names of its own for the keys: both sides may call a column the same.
        wrapped = select(keys, [f"{quoted(theirs)} AS {_LOOKUP}{n}" for n, (_, theirs) in enumerate(on)])
        stored = self.stored_of([self.desc.table_id], lookup_keys)
        runs = self._runs(stored, list(dict.fromkeys([*wanted, *(ours for ours, _ in on)])))
        condition: Column | None = None
        for n, ((ours, _), nulls_match) in enumerate(zip(on, safe, strict=True)):
            left, right = F.col(quoted(ours)), F.col(f"{_LOOKUP}{n}")
            equal = left.eqNullSafe(right) if nulls_match else left == right
            condition = equal if condition is None else condition & equal
        matched = runs.join(wrapped.hint(hint) if hint else wrapped, condition, "left_semi")
        return select(matched, [*map(quoted, wanted), STATE_WEIGHT, EPOCH])

    def prefix_runs(self, prefix: Mapping[str, Any], columns: Sequence[str] | None = None) -> DataFrame:
        """Unmerged rows with these values in the first key columns.

        Read from the files that can have them.

        Raises
        ------
        StateError
            The columns named are not the first ones of the storage primary key.
        """
        key = self.desc.schema.storage_key[: len(prefix)]
        if {part.column for part in key} != set(prefix):
            raise StateError(
                f"{self.place()}: prefix columns {sorted(prefix)} are not the first of the key "
                f"{[part.column for part in self.desc.schema.storage_key]}"
            )
        stored = self.stored_of([self.desc.table_id], key_row=prefix or None)
        encoded: bytes | None = None
        for part in key:
            column = self.slots.of(part.column)
            value = literal(prefix[part.column], column.data_type)
            if value is None:
                encoded = encode_row([prefix[p.column] for p in key], encoded_parts(self.desc.schema.columns, key))
            elif column.slot is not None:
                stored = stored.where(F.expr(column.value).eqNullSafe(value))
        if encoded is not None:
            # Structs and arrays have no literal; the encoded key finds any prefix, by reading the key column.
            stored = stored.where(F.substring(F.col(KEY), 1, len(encoded)) == F.lit(encoded))
        return self._runs(stored, self.column_names if columns is None else columns)

    def scan(self, prefix: Mapping[str, Any] | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """Merged rows, in key order if the key is selected.

        No Spark action.

        Parameters
        ----------
        prefix : values of the first columns of the storage primary key; all rows without it.
        columns : the columns wanted; all by default.

        Returns
        -------
        DataFrame
            ``columns``, and ``_weight`` where weights add up.
        """
        wanted = self.column_names if columns is None else list(columns)
        return merged_in_order(self.prefix_runs(prefix or {}, self.needed(wanted)), self.desc, wanted)

    def needed(self, columns: Sequence[str]) -> list[str]:
        """The columns that must be read so that merged rows have ``columns``."""
        if self.desc.schema.merge is MergeRule.SUM:
            return list(columns)
        return list(dict.fromkeys([*(part.column for part in self.desc.schema.storage_key), *columns]))

    def place(self, key: Sequence[Any] | None = None) -> str:
        """Name of this table, and a key in it, for messages."""
        where = f"state table {self.desc.schema.label} (table_id {self.desc.table_id})"
        return where if key is None else f"{where}, key {tuple(key)}"

    def _runs(self, stored: DataFrame, columns: Sequence[str]) -> DataFrame:
        own = [self.slots.of(name).read() for name in columns]
        return select(stored, [*own, f"{WEIGHT_COLUMN} AS {STATE_WEIGHT}", f"{EPOCH_COLUMN} AS {EPOCH}"])


def merged_in_order(runs: DataFrame, desc: StateTableDesc, columns: Sequence[str]) -> DataFrame:
    """Runs merged, in key order as far as the key is among the columns."""
    leading = []
    for part in desc.schema.storage_key:
        if part.column not in columns:
            break
        leading.append(part)
    merged = merge_runs(runs, desc.schema, columns)
    return merged.orderBy(*key_order(leading)) if leading else merged
