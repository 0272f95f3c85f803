"""The data files of a Delta table at a version, with what the log says of each: read by delta-rs, without a Spark job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

_FACTS: Final = ("path", "size_bytes", "num_records")
_PARTITION: Final = "partition."


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a Delta table.

    Parameters
    ----------
    path : as the log has it.
    bytes, rows : its size; rows are -1 where its writer left statistics out.
    partition : its partition values by column.
    lower, upper : the least and greatest value of each column that has statistics; of a partition column its value.
    """

    path: str
    bytes: int
    rows: int
    partition: Mapping[str, Any]
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]


class _Bounds:
    """The statistics of one kind of all files: a column's become Python values when the first file is asked for it.

    An epoch asks for one or two of a table's columns, and a table of many columns may have thousands of files.
    """

    def __init__(self, actions: pa.Table, kind: str, names: Mapping[str, str]) -> None:
        self._columns: dict[str, pa.ChunkedArray] = {}
        for prefix in (f"{kind}.", _PARTITION):
            stored = [name for name in actions.column_names if name.startswith(prefix)]
            for column in stored:
                name = column.removeprefix(prefix)
                self._columns[names.get(name, name)] = actions.column(column)
        self._values: dict[str, list[Any]] = {}

    def names(self) -> Iterable[str]:
        return self._columns

    def of(self, column: str) -> list[Any]:
        values = self._values.get(column)
        if values is None:
            values = self._values[column] = self._columns[column].to_pylist()
        return values


class _FileBounds(Mapping[str, Any]):
    """Those of one file, without the columns of which it has none."""

    __slots__ = ("_bounds", "_place")

    def __init__(self, bounds: _Bounds, place: int) -> None:
        self._bounds, self._place = bounds, place

    def __getitem__(self, column: str) -> Any:
        value = self._bounds.of(column)[self._place]
        if value is None:
            raise KeyError(column)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._bounds.names() if self._bounds.of(name)[self._place] is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def data_files(table: DeltaTable, names: Mapping[str, str] | None = None) -> tuple[DataFile, ...]:
    """All files of an opened version of a table, in the order of their paths.

    Parameters
    ----------
    names : what columns are called whose statistics have another name in the log.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    lower, upper = (_Bounds(actions, kind, names or {}) for kind in ("min", "max"))
    partitions = {
        n.removeprefix(_PARTITION): actions.column(n).to_pylist() for n in actions.column_names if n.startswith(_PARTITION)
    }
    found = []
    for place, (path, size, rows) in enumerate(zip(*(actions.column(name).to_pylist() for name in _FACTS), strict=True)):
        partition = {name: values[place] for name, values in partitions.items()}
        bounds = _FileBounds(lower, place), _FileBounds(upper, place)
        found.append(DataFile(path, size, -1 if rows is None else int(rows), partition, *bounds))
    return tuple(sorted(found, key=lambda f: f.path))


def row_count(files: Iterable[DataFile]) -> int | None:
    """Rows of some files together; ``None`` where a writer left the statistics of one out."""
    counts = [file.rows for file in files]
    return sum(counts) if min(counts, default=0) >= 0 else None
