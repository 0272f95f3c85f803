"""Where a path lies: on this machine, or in the object store that its address names. And how a file there is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow import fs


def filesystem_of(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or address, and the path within it."""
    if "://" in path or path.startswith("file:"):
        filesystem, inside = fs.FileSystem.from_uri(path)
        return filesystem, inside
    return fs.LocalFileSystem(), str(Path(path).absolute())


@contextmanager
def opened_parquet(path: str, footer: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """A Parquet file, to be read in this thread; its footer is not read where it is given."""
    filesystem, inside = filesystem_of(path)
    with filesystem.open_input_file(inside) as file, pq.ParquetFile(file, metadata=footer, pre_buffer=False) as parquet:
        yield parquet
