"""Primary keys of a whole table, read in order by the driver.

Grouping by key would shuffle every key of a source before a view is built on it. That took four times as long as the view
(60 M lines, TPC-H Q19). Files are mostly written in an order that is much like that of the key, though: a row group
overlaps few others. So row groups are read in the order of their least key, and keys below the least of all that follow are
complete: they are found unique and forgotten.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from relstate_dagster.jobs.sources.key_files import KeyProblem, null_key, plain_type, read_keys
from relstate_dagster.state_lib.lake.address import full_path
from relstate_dagster.state_lib.lake.parquet import FileMetaData, opened_parquet
from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.tuning import tuning

_READERS: Final = min(8, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group with the least and greatest value of key columns."""

    path: str
    footer: FileMetaData
    number: int
    rows: int
    bounds: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class KeysInOrder:
    """Row groups of a table by their least key.

    Those without statistics come first.

    Parameters
    ----------
    key : the primary key.
    column : that of the key by which row groups overlap least.
    most_rows : how many rows have to be held at once, at most.
    """

    table: str
    key: tuple[str, ...]
    column: str
    row_groups: tuple[_RowGroup, ...]
    most_rows: int

    def problem(self) -> KeyProblem | None:
        """The first key that is NULL or not unique."""
        held = None
        groups = list(reversed(self.row_groups))
        with ThreadPoolExecutor(_READERS) as pool:
            while groups:
                enough = max(tuning().keys_read_at_once, 0 if held is None else held.num_rows)
                batch = [groups.pop()]
                while groups and sum(group.rows for group in batch) < enough:
                    batch.append(groups.pop())
                read = list(pool.map(partial(_keys_in, self.table, self.key), batch))
                keys = pa.concat_tables(read if held is None else [held, *read], promote_options="permissive")
                null = null_key(keys, self.key)
                if null is not None:
                    return null
                complete, held = self._complete(keys, groups[-1] if groups else None)
                found = _repeated(complete, self.key)
                if found is not None:
                    return found
        return None

    def _complete(self, keys: pa.Table, following: _RowGroup | None) -> tuple[pa.Table, pa.Table]:
        """The keys that no row group still to be read can have, and the others."""
        if following is None:
            return keys, keys.slice(0, 0)
        if self.column not in following.bounds:
            return keys.slice(0, 0), keys
        values = keys[self.column]
        below = pc.less(values, pa.scalar(following.bounds[self.column][0], values.type))
        return keys.filter(below), keys.filter(pc.invert(below))


def keys_in_order(table: str, files: Sequence[DataFile], key: Sequence[str]) -> KeysInOrder | None:
    """Keys of files that are a table's rows.

    ``None`` if Spark compares their type in another way (floating point).
    """
    with ThreadPoolExecutor(_READERS) as pool:
        footers = list(pool.map(partial(_footer, table, key=key), (file.path for file in files)))
    if not all(comparable for comparable, _ in footers):
        return None
    groups = [group for _, of_file in footers for group in of_file]
    orders = (_by(table, tuple(key), column, groups) for column in key)
    return min(orders, key=lambda order: order.most_rows)


def _by(table: str, key: tuple[str, ...], column: str, groups: Sequence[_RowGroup]) -> KeysInOrder:
    known = sorted((group for group in groups if column in group.bounds), key=lambda group: group.bounds[column])
    unknown = [group for group in groups if column not in group.bounds]
    most = _most_at_once(known, column) + sum(group.rows for group in unknown)
    return KeysInOrder(table, key, column, (*unknown, *known), most)


def _most_at_once(groups: Sequence[_RowGroup], column: str) -> int:
    """The rows of those that overlap in one value, where they are most."""
    most = rows = 0
    open_until: list[tuple[Any, int]] = []
    for group in groups:
        lower, upper = group.bounds[column]
        while open_until and open_until[0][0] < lower:
            rows -= heapq.heappop(open_until)[1]
        heapq.heappush(open_until, (upper, group.rows))
        rows += group.rows
        most = max(most, rows)
    return most


def _footer(table: str, path: str, key: Sequence[str]) -> tuple[bool, list[_RowGroup]]:
    """Row groups of a file, and whether its key types compare as in Spark."""
    with opened_parquet(full_path(table, path)) as parquet:
        metadata = parquet.metadata
        types = [plain_type(parquet.schema_arrow.field(column).type) for column in key]
    groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        bounds = {}
        for position in range(group.num_columns):
            column = group.column(position)
            statistics = column.statistics if column.path_in_schema in key else None
            if statistics is not None and statistics.has_min_max:
                bounds[column.path_in_schema] = (statistics.min, statistics.max)
        groups.append(_RowGroup(path, metadata, number, group.num_rows, bounds))
    return not any(pa.types.is_floating(t) or pa.types.is_nested(t) for t in types), groups


def _keys_in(table: str, key: Sequence[str], group: _RowGroup) -> pa.Table:
    return read_keys(table, group.path, list(key), row_group=group.number, footer=group.footer)


def _repeated(keys: pa.Table, key: Sequence[str]) -> KeyProblem | None:
    """A key that several rows have.

    Rows in order are only compared with their neighbours.
    """
    if _rises(keys, key):
        return None
    ordered = keys.take(pc.sort_indices(keys, sort_keys=[(column, "ascending") for column in key]))
    for same in _like_their_neighbours(ordered, key).slice(0, 1).to_pylist():
        rows = keys
        for column, value in same.items():
            rows = rows.filter(pc.equal(rows[column], pa.scalar(value, rows[column].type)))
        return KeyProblem(same, rows.num_rows)
    return None


def _rises(keys: pa.Table, key: Sequence[str]) -> bool:
    before, after = _neighbours(keys)
    rises: Any = pa.scalar(value=False)
    for column in reversed(key):
        rises = pc.or_(pc.greater(after[column], before[column]), pc.and_(pc.equal(after[column], before[column]), rises))
    return bool(pc.all(rises, min_count=0).as_py())


def _like_their_neighbours(keys: pa.Table, key: Sequence[str]) -> pa.Table:
    before, after = _neighbours(keys)
    same: Any = pa.scalar(value=True)
    for column in key:
        same = pc.and_(pc.equal(after[column], before[column]), same)
    return after.filter(same)


def _neighbours(keys: pa.Table) -> tuple[pa.Table, pa.Table]:
    return keys.slice(0, max(0, keys.num_rows - 1)), keys.slice(1)
