"""Small files that are written once and never changed: written whole or not at all, on a disk as in an object store."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from pyarrow import fs

from relstate_dagster.state_lib.lake.address import filesystem_of


def write_once(path: str, content: bytes) -> None:
    """Write a file, unless it is there already: whoever names a file by its content may write it twice."""
    filesystem, inside = filesystem_of(path)
    if filesystem.get_file_info(inside).type is fs.FileType.File:
        return
    if not isinstance(filesystem, fs.LocalFileSystem):
        # An object appears when all of it is there.
        with filesystem.open_output_stream(inside) as stream:
            stream.write(content)
        return
    filesystem.create_dir(inside.rpartition("/")[0], recursive=True)
    half = f"{inside}.{uuid.uuid4().hex[:8]}.tmp"
    with filesystem.open_output_stream(half) as stream:
        stream.write(content)
    filesystem.move(half, inside)


def read_file(path: str) -> bytes:
    """What a file holds.

    Raises
    ------
    FileNotFoundError : there is none.
    """
    filesystem, inside = filesystem_of(path)
    with filesystem.open_input_stream(inside) as stream:
        return bytes(stream.read())


def files_in(folder: str) -> list[fs.FileInfo]:
    """The files of a folder, with their sizes and times; none where there is no folder."""
    filesystem, inside = filesystem_of(folder)
    found = filesystem.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    return [info for info in found if info.type is fs.FileType.File]


class FoundFile(NamedTuple):
    """A file below a folder: its path from there on, its size in bytes, and when it was modified, in µs since 1970."""

    path: str
    size: int
    modified_us: int


def files_below(folder: str) -> list[FoundFile]:
    """The files of a folder and of those in it.

    Raises
    ------
    FileNotFoundError, NotADirectoryError : there is no such folder.
    """
    filesystem, inside = filesystem_of(folder)
    found = filesystem.get_file_info(fs.FileSelector(inside, recursive=True))
    begin = len(inside.rstrip("/")) + 1
    files = [info for info in found if info.type is fs.FileType.File]
    return [FoundFile(info.path[begin:], int(info.size or 0), (info.mtime_ns or 0) // 1000) for info in files]


def delete_file(folder: str, name: str) -> None:
    """Delete a file of a folder."""
    filesystem, inside = filesystem_of(folder)
    filesystem.delete_file(f"{inside}/{name}")
