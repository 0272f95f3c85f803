"""Folders of tables: whether one holds a Delta table, and deleting one."""

from __future__ import annotations

from pyarrow import fs

from relstate_dagster.state_lib.lake.address import filesystem_of
from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable


def is_table(path: str) -> bool:
    """Whether there is a Delta table at a path; a damaged one is."""
    return bool(DeltaTable.is_deltatable(path))


def delete_folder(path: str) -> None:
    """Delete a folder and all that is in it, if it is there."""
    filesystem, inside = filesystem_of(path)
    if filesystem.get_file_info(inside).type is not fs.FileType.NotFound:
        filesystem.delete_dir(inside)


def table_id(path: str) -> str:
    """The id that the Delta table at a path was given when it was made; empty where there is none, or it cannot be opened."""
    try:
        return str(DeltaTable(path).metadata().id)
    except (DeltaError, OSError):
        return ""
