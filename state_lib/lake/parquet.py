"""Parquet files, read by the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet import FileMetaData

from relstate_dagster.state_lib.lake.address import filesystem_of

__all__ = ["FileMetaData", "footer_rows", "opened_parquet", "parquet_bytes", "parquet_table", "value_counts"]

_READERS: Final = 8
_T = TypeVar("_T")


@contextmanager
def opened_parquet(path: str, footer: FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """A Parquet file, read in this thread.

    Its footer is not read if it is given.
    """
    filesystem, inside = filesystem_of(path)
    with filesystem.open_input_file(inside) as file, pq.ParquetFile(file, metadata=footer, pre_buffer=False) as parquet:
        yield parquet


def parquet_bytes(rows: pa.Table) -> bytes:
    """Rows as the content of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())


def parquet_table(content: bytes) -> pa.Table:
    """The rows in the content of a Parquet file."""
    return pq.read_table(pa.BufferReader(content))


def footer_rows(paths: Sequence[str]) -> list[int]:
    """Rows of files, from their footers."""
    return _each(_rows, paths)


def value_counts(paths: Sequence[str], column: str) -> Counter[str | None]:
    """Counts of each text in a column of files.

    Row groups with one text only are not read.
    """
    return sum(_each(partial(_values, column), paths), Counter())


def _each(read: Callable[[str], _T], paths: Sequence[str]) -> list[_T]:
    if len(paths) <= 1:
        return [read(path) for path in paths]
    with ThreadPoolExecutor(min(_READERS, len(paths))) as pool:
        return list(pool.map(read, paths))


def _rows(path: str) -> int:
    with opened_parquet(path) as parquet:
        return int(parquet.metadata.num_rows)


def _values(column: str, path: str) -> Counter[str | None]:
    counts: Counter[str | None] = Counter()
    with opened_parquet(path) as parquet:
        for number in range(parquet.num_row_groups):
            group = parquet.metadata.row_group(number)
            chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
            statistics = chunk.statistics
            if (
                statistics is not None
                and statistics.has_min_max
                and not statistics.null_count
                and statistics.min == statistics.max
            ):
                counts[statistics.min] += group.num_rows
                continue
            read = parquet.read_row_group(number, columns=[column], use_threads=False).column(0)
            counts.update({c["values"]: c["counts"] for c in read.value_counts().to_pylist()})
    return counts
