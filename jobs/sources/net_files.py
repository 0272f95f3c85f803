"""Changes between two versions of a table as the net difference of their files.

A row that a table gained or lost is in a file that only one of the two versions has. Or only one of two deletion vectors
marks it. Rows of removed files count −1, rows of added files +1, and equal rows are summed: an exact change set. No change
data feed is needed, no key, and no row ids. It costs the bytes of the files that were rewritten.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from relstate_dagster.jobs.sources.change_files import ChangeFile, places_by_weight
from relstate_dagster.jobs.sources.deleted_rows import DeletedRows
from relstate_dagster.jobs.sources.file_layout import FileLayout, file_name, physical_name, struct_of
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.lake.log import TableFacts
from relstate_dagster.state_lib.lake.statistics import DataFile, byte_count
from relstate_dagster.state_lib.row_sums import columns_of_schema, consolidate
from relstate_dagster.state_lib.sql_text import quoted


@dataclass(frozen=True, slots=True)
class FilesAt:
    """The files of a table at one version.

    Parameters
    ----------
    files : by their paths.
    deleted : rows that deletion vectors mark; ``None`` where only Delta knows them.
    """

    files: Mapping[str, DataFile]
    deleted: DeletedRows | None

    def live_rows(self, path: str) -> int:
        """Rows of a file that are not marked as deleted, by the log."""
        marked = 0 if self.deleted is None else len(self.deleted.positions(path))
        return max(0, self.files[path].rows - marked)


@dataclass(frozen=True, slots=True)
class FileDifference:
    """The files in which two versions differ, by path.

    Parameters
    ----------
    removed, added : that only the earlier version has, or only the later one.
    marked : that both have, with other deletion vectors, or perhaps with such.
    """

    before: FilesAt
    after: FilesAt
    removed: tuple[str, ...]
    added: tuple[str, ...]
    marked: tuple[str, ...]

    @classmethod
    def between(cls, before: FilesAt, after: FilesAt, touched: Collection[str] | None) -> FileDifference:
        """The difference of two versions.

        Parameters
        ----------
        touched : names of the files that commits in between added or removed; ``None`` where that is not known.
        """
        removed = tuple(path for path in before.files if path not in after.files)
        added = tuple(path for path in after.files if path not in before.files)
        both = [path for path in after.files if path in before.files]
        old, new = before.deleted, after.deleted
        if old is not None and new is not None:
            marked = [path for path in both if not old.positions(path).equals(new.positions(path))]
        else:
            marked = [path for path in both if touched is None or file_name(path) in touched]
        return cls(before, after, removed, added, tuple(marked))

    @property
    def names(self) -> frozenset[str]:
        """Names of the files, as Spark has them."""
        return frozenset(map(file_name, (*self.removed, *self.added, *self.marked)))

    @property
    def total_bytes(self) -> int:
        """Bytes of all files of both versions: Delta leaves none out."""
        return byte_count(self.before.files.values()) + byte_count(self.after.files.values())

    def change_files(self, layout: FileLayout) -> tuple[ChangeFile, ...] | None:
        """The files with their weights; ``None`` where only Delta can read them."""
        before, after = self.before, self.after
        if before.deleted is None or after.deleted is None:
            return None
        sides = ((before, self.removed, -1), (after, self.added, 1))
        if not all(layout.has_partition_values(path, at.files[path].partition) for at, paths, _ in sides for path in paths):
            return None
        if not all(layout.has_partition_values(path, after.files[path].partition) for path in self.marked):
            return None
        found: list[ChangeFile] = []
        for at, paths, weight in sides:
            for path in paths:
                file = at.files[path]
                found.append(ChangeFile(path, file.bytes, weight, file.partition))
                found += _at(file, -weight, _positions(at.deleted, path))
        for path in self.marked:
            file, old, new = after.files[path], _positions(before.deleted, path), _positions(after.deleted, path)
            found += [*_at(file, -1, _without(new, old)), *_at(file, 1, _without(old, new))]
        return tuple(found)

    def rows(self) -> tuple[int, int]:
        """Rows of these files, as inserted and deleted ones: at least those that changed."""
        before, after = self.before, self.after
        inserted = sum(map(after.live_rows, self.added))
        deleted = sum(map(before.live_rows, self.removed))
        for path in self.marked:
            if before.deleted is None or after.deleted is None:
                inserted, deleted = inserted + after.live_rows(path), deleted + before.live_rows(path)
                continue
            old, new = before.deleted.positions(path), after.deleted.positions(path)
            inserted, deleted = inserted + len(_without(old, new)), deleted + len(_without(new, old))
        return inserted, deleted


def without_cancelled(files: Sequence[ChangeFile]) -> tuple[ChangeFile, ...]:
    """Changes of several commits, without files and places that cancel out."""
    of_path = {file.path: file for file in files}
    whole: Counter[str] = Counter()
    for file in files:
        if file.positions is None and file.weight:
            whole[file.path] += file.weight
    found = [file for file in files if not file.weight]
    found += [replace(of_path[path], weight=weight, positions=None) for path, weight in whole.items() if weight]
    share = {
        file.path: file.bytes / len(file.positions) for file in files if file.positions is not None and len(file.positions)
    }
    for weight, places in places_by_weight(files).items():
        for path, positions in places.items():
            size = math.ceil(share[path] * len(positions))
            found.append(replace(of_path[path], weight=weight, positions=positions, bytes=size))
    return tuple(found)


def must_be_netted(files: Sequence[ChangeFile]) -> bool:
    """Whether equal rows may be removed and added, and cancel out."""
    return any(file.weight <= 0 for file in files) and any(file.weight >= 0 for file in files)


def union_of_common(rows: DataFrame, more: DataFrame) -> DataFrame:
    """Rows of two table versions, with the columns that both have.

    No view reads a column that changed in between.
    """
    types = {field.name: field.dataType for field in more.schema.fields}
    common = [quoted(field.name) for field in rows.schema.fields if types.get(field.name) == field.dataType]
    return rows.select(*common).union(more.select(*common))


def summed(rows: DataFrame, columns: Collection[str] | None) -> DataFrame:
    """Equal rows of a change set summed, and those that cancel out dropped."""
    kept = [name for name in rows.columns if name != WEIGHT and (columns is None or name in columns)]
    typed = [column for column in columns_of_schema(rows.schema) if column.name in kept]
    return consolidate(rows, typed)


def reads_older_files(layout: FileLayout, before: TableFacts) -> bool:
    """Whether the files of an earlier version are read right by a later version's layout.

    Every column that both have is of the same type, and the folders are of the same columns.
    """
    stored = {physical_name(field): field.dataType for field in struct_of(before.schema_json).fields}
    same = all(stored.get(layout.physical[f.name], f.dataType) == f.dataType for f in layout.schema.fields)
    return same and before.partition_columns == layout.partitioned_by


def _at(file: DataFile, weight: int, positions: pa.Int64Array) -> Iterator[ChangeFile]:
    """The change of the rows at some places of a file."""
    if len(positions):
        share = len(positions) / max(file.rows, len(positions))
        yield ChangeFile(file.path, math.ceil(file.bytes * share), weight, file.partition, positions)


def _positions(deleted: DeletedRows | None, path: str) -> pa.Int64Array:
    assert deleted is not None
    return deleted.positions(path)


def _without(positions: pa.Int64Array, others: pa.Int64Array) -> pa.Int64Array:
    return positions.filter(pc.invert(pc.is_in(positions, value_set=others)))
