"""Parquet files, read by the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.parquet as pq
from pyarrow.parquet import FileMetaData

from state_lib.lake.address import filesystem_of

__all__ = ["FileMetaData", "opened_parquet"]


@contextmanager
def opened_parquet(path: str, footer: FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """A Parquet file, to be read in this thread; its footer is not read where it is given."""
    filesystem, inside = filesystem_of(path)
    with filesystem.open_input_file(inside) as file, pq.ParquetFile(file, metadata=footer, pre_buffer=False) as parquet:
        yield parquet
