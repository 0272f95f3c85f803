"""Where a path lies: on this machine, or in the object store that its address names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from pyarrow import fs

from state_lib.errors import StateError


def filesystem_of(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or address, and the path within it."""
    if "://" in path or path.startswith("file:"):
        filesystem, inside = fs.FileSystem.from_uri(path)
        return filesystem, inside
    return fs.LocalFileSystem(), str(Path(path).absolute())


def table_reference(path: str) -> str:
    """A Delta table in SQL, by its path.

    Raises
    ------
    StateError
        The path has a backtick.
    """
    if "`" in path:
        raise StateError(f"a path with a backtick cannot be named in SQL: {path}")
    return f"delta.`{path}`"


def full_path(table: str, path: str) -> str:
    """A file of a table, by its path as the log has it, where it lies."""
    return unquote(path) if is_absolute(path) else f"{table}/{unquote(path)}"


def is_absolute(path: str) -> bool:
    """Whether a path in a log is an address and not one within the table."""
    return "://" in path or path.startswith("file:")
