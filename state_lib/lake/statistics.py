"""Data files of a Delta version with their logged statistics, without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from relstate_dagster.state_lib.lake.table import EXACT_DIGITS, DeltaTable

_FACTS: Final = ("path", "size_bytes", "num_records")
#: Powers of ten up to this one are doubles, so that a double of a decimal with this scale is rounded once.
_EXACT_SCALE: Final = 22
_WIDE: Final = Context(prec=100)


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
    """Bounds of one kind, of all files.

    A column's become Python values when the first file is asked for it.

    An epoch asks for one or two of a table's columns, and a table of many columns may have thousands of files.

    Parameters
    ----------
    stored : bounds from the log, by the columns' names there.
    partitions : the partition values, which bound themselves.
    unbounded : columns, by their logical names, whose bounds say nothing.
    is_upper : which bounds these are.
    """

    def __init__(
        self,
        stored: Mapping[str, pa.ChunkedArray],
        partitions: Mapping[str, list[Any]],
        names: Mapping[str, str],
        unbounded: Collection[str],
        *,
        is_upper: bool,
    ) -> None:
        columns = {names.get(name, name): column for name, column in stored.items() if _has_bounds(column.type)}
        values = {names.get(name, name): values for name, values in partitions.items()}
        self._columns = {name: column for name, column in columns.items() if name not in unbounded}
        self._values = {name: column for name, column in values.items() if name not in unbounded}
        self._is_upper = is_upper

    def names(self) -> Iterable[str]:
        return dict.fromkeys((*self._columns, *self._values))

    def of(self, column: str) -> list[Any]:
        values = self._values.get(column)
        if values is None:
            values = self._values[column] = _trusted(self._columns[column], is_upper=self._is_upper)
        return values


def _has_bounds(data_type: pa.DataType) -> bool:
    """Whether bounds of a type are reliable.

    Those of floating-point numbers may leave out NaN, the greatest to Spark.
    """
    return not (pa.types.is_floating(data_type) or pa.types.is_nested(data_type) or pa.types.is_boolean(data_type))


def _trusted(bounds: pa.ChunkedArray, *, is_upper: bool) -> list[Any]:
    """Bounds as Python values, ``None`` where they are not known for sure, whoever wrote them."""
    data_type = bounds.type
    try:
        values: list[Any] = bounds.to_pylist()
    except (OverflowError, ValueError):  # dates and timestamps that Python does not have
        return [None] * len(bounds)
    if pa.types.is_decimal(data_type):
        return [value if _is_exact(value, data_type.scale) else None for value in values]
    if is_upper and pa.types.is_timestamp(data_type):
        # Logs have milliseconds, cut off.
        return [None if value is None else _end_of_millisecond(value) for value in values]
    return values


def _is_exact(value: Decimal | None, scale: int) -> bool:
    """Whether a double holds a decimal, as delta-rs writes it.

    Other bounds can be less, or more, than the value.
    """
    return value is not None and 0 <= scale <= _EXACT_SCALE and abs(value.scaleb(scale, _WIDE)) < 10**EXACT_DIGITS


def _end_of_millisecond(value: dt.datetime) -> dt.datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000 + 999)


class _FileBounds(Mapping[str, Any]):
    """Bounds of one file, without columns that have none."""

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


def data_files(
    table: DeltaTable, names: Mapping[str, str] | None = None, unbounded: Collection[str] = ()
) -> tuple[DataFile, ...]:
    """All files of an opened version of a table, in the order of their paths.

    Parameters
    ----------
    names : what columns are called whose statistics have another name in the log.
    unbounded : columns, as they are called, whose values are read as others than the log has.
    """
    actions = table.get_add_actions()
    partitions = {name: column.to_pylist() for name, column in _fields(actions, "partition").items()}
    lower, upper = (
        _Bounds(_fields(actions, kind), partitions, names or {}, unbounded, is_upper=kind == "max") for kind in ("min", "max")
    )
    found = []
    for place, (path, size, rows) in enumerate(zip(*(actions.column(name).to_pylist() for name in _FACTS), strict=True)):
        partition = {name: values[place] for name, values in partitions.items()}
        bounds = _FileBounds(lower, place), _FileBounds(upper, place)
        found.append(DataFile(path, size, -1 if rows is None else int(rows), partition, *bounds))
    return tuple(sorted(found, key=lambda f: f.path))


def _fields(actions: pa.Table, struct: str) -> dict[str, pa.ChunkedArray]:
    """Statistics of each column, over some files; nothing where none has any."""
    if struct not in actions.column_names:
        return {}
    column = actions.column(struct)
    names = [field.name for field in column.type]
    return dict(zip(names, column.flatten(), strict=True))


def byte_count(files: Iterable[DataFile]) -> int:
    """Bytes of some files together."""
    return sum(file.bytes for file in files)


def row_count(files: Iterable[DataFile]) -> int | None:
    """Rows of some files together; ``None`` where a writer left the statistics of one out."""
    counts = [file.rows for file in files]
    return sum(counts) if min(counts, default=0) >= 0 else None
