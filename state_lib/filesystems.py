"""Where a path lies: on this machine, or in the object store that its address names."""

from __future__ import annotations

from pathlib import Path

from pyarrow import fs


def filesystem_of(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or address, and the path within it."""
    if "://" in path or path.startswith("file:"):
        filesystem, inside = fs.FileSystem.from_uri(path)
        return filesystem, inside
    return fs.LocalFileSystem(), str(Path(path).absolute())
