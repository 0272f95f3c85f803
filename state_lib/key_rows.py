"""Distinct keys of a lookup, in all columns, which select vnodes and files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from relstate_dagster.state_lib.constants import VNODE
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.slots import TableSlots
from relstate_dagster.state_lib.table_schema import StateTableDesc
from relstate_dagster.state_lib.tuning import tuning
from relstate_dagster.state_lib.vnode import vnodes_of_row

#: The values of some columns of a state table, by their names.
KeyRow: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The keys of a lookup, as the driver holds them.

    Parameters
    ----------
    values : the keys, duplicates allowed; its columns are named as those of the state table that they equal.
    matching_nulls : the columns in which NULL equals NULL. A key with a NULL in another one finds nothing.
    """

    values: pa.Table
    matching_nulls: frozenset[str]

    @classmethod
    def of(cls, values: pa.Table, on: Sequence[tuple[str, str]], matching_nulls: Sequence[str]) -> KeyRows | None:
        """The keys in the columns that have scalar values; ``None`` if there are none.

        Parameters
        ----------
        values : rows that the driver holds.
        on : pairs of a state column and the column of ``values`` it equals.
        """
        known = {ours: values[theirs] for ours, theirs in on if theirs in values.column_names}
        plain = {name: column for name, column in known.items() if _is_plain(column.type)}
        return cls(pa.table(plain), frozenset(matching_nulls)) if plain else None

    def renamed(self, name_of: Callable[[str], str]) -> KeyRows:
        """The keys of a table that calls its columns otherwise."""
        names = [name_of(name) for name in self.values.column_names]
        return KeyRows(self.values.rename_columns(names), frozenset(map(name_of, self.matching_nulls)))

    def files(self, desc: StateTableDesc, slots: TableSlots, files: Sequence[DataFile]) -> Sequence[DataFile]:
        """Files of a state table that can have one of the keys.

        All where these are too many to ask, or not known.
        """
        distribution = list(desc.schema.distribution_key)
        if desc.vnode_count == 1 or not distribution or not set(distribution) <= set(self.values.column_names):
            return files
        # Of the distribution key alone: a lookup by more columns has more keys than vnodes.
        distinct = self.values.select(distribution).group_by(distribution, use_threads=False).aggregate([])
        if distinct.num_rows > tuning().vnode_keys:
            return files
        try:
            rows = [row for row in distinct.to_pylist() if self._finds(row)]
            return files_with_rows(rows, desc, slots, files)
        except (StateError, OverflowError, ValueError, TypeError):
            return files  # dates that Python does not have, or a value that is not of the column's type

    def _finds(self, row: KeyRow) -> bool:
        return all(value is not None or name in self.matching_nulls for name, value in row.items())


def files_with_rows(
    rows: Sequence[KeyRow], desc: StateTableDesc, slots: TableSlots, files: Sequence[DataFile]
) -> Sequence[DataFile]:
    """Files of a state table that can have rows with some values.

    By vnode, and by the range of each column.

    Parameters
    ----------
    rows : values of some columns of the table, the same in each. NULL is a value, too.

    Raises
    ------
    StateError
        A value does not fit its column.
    """
    if not rows or not set(desc.schema.distribution_key) <= rows[0].keys():
        return [file for file in files if any(_may_be_in(file, row, slots) for row in rows)]
    by_vnode = defaultdict(list)
    for row in rows:
        for vnode in vnodes_of_row(desc, row):
            by_vnode[vnode].append(row)
    return [file for file in files if any(_may_be_in(file, row, slots) for row in by_vnode.get(file.partition[VNODE], ()))]


def _is_plain(data_type: pa.DataType) -> bool:
    """Types whose values the driver has as the row encoding knows them."""
    types = pa.types
    return bool(
        types.is_integer(data_type)
        or types.is_floating(data_type)
        or types.is_decimal(data_type)
        or types.is_boolean(data_type)
        or types.is_date(data_type)
        or types.is_timestamp(data_type)
        or types.is_string(data_type)
        or types.is_binary(data_type)
    )


def _may_be_in(file: DataFile, row: KeyRow, slots: TableSlots) -> bool:
    for name, value in row.items():
        slot = slots.of(name).plain_slot
        if value is None or slot is None or slot not in file.lower or slot not in file.upper:
            continue
        try:
            if not file.lower[slot] <= value <= file.upper[slot]:
                return False
        except TypeError:
            continue
    return True
