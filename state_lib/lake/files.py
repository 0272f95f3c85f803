"""Small immutable files, written whole or not at all, anywhere."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from pyarrow import fs

from relstate_dagster.state_lib.lake.address import filesystem_of


def write_once(path: str, content: bytes) -> None:
    """Write a file, unless it exists.

    Whoever names a file by its content may write it twice.
    """
    filesystem, inside = filesystem_of(path)
    if filesystem.get_file_info(inside).type is not fs.FileType.File:
        write_file(path, content)


def write_file(path: str, content: bytes) -> None:
    """Write a file, in place of one that exists."""
    filesystem, inside = filesystem_of(path)
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
    """Contents of a file.

    Raises
    ------
    FileNotFoundError : there is none.
    """
    filesystem, inside = filesystem_of(path)
    with filesystem.open_input_stream(inside) as stream:
        return bytes(stream.read())


def files_in(folder: str) -> list[fs.FileInfo]:
    """Files of a folder, with sizes and times; none without a folder."""
    filesystem, inside = filesystem_of(folder)
    found = filesystem.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    return [info for info in found if info.type is fs.FileType.File]


class FoundFile(NamedTuple):
    """A file below a folder: path, size in bytes, modification time in µs."""

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
