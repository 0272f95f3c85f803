"""Folders of Delta tables: detection, listing, and deletion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyarrow import fs

from relstate_dagster.state_lib.lake.address import filesystem_of
from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """Data files under a path, whether a version names them or not."""

    files: int
    bytes: int

    def __add__(self, other: StoredFiles) -> StoredFiles:
        return StoredFiles(self.files + other.files, self.bytes + other.bytes)


NO_FILES: Final = StoredFiles(0, 0)


def stored_files(path: str) -> StoredFiles:
    """Count the data files under a path."""
    filesystem, root = filesystem_of(path)
    found = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
    # Files with a dot in front are checksums that Spark puts beside what it writes to a local disk.
    files = [f for f in found if f.type is fs.FileType.File and not f.base_name.startswith(".")]
    data = [f.size for f in files if "/_delta_log/" not in f.path]
    return StoredFiles(len(data), sum(data))


def is_table(path: str) -> bool:
    """Whether there is a Delta table at a path; a damaged one is."""
    return bool(DeltaTable.is_deltatable(path))


def delete_folder(path: str) -> None:
    """Delete a folder and all that is in it, if it is there."""
    filesystem, inside = filesystem_of(path)
    if filesystem.get_file_info(inside).type is fs.FileType.NotFound:
        return
    try:
        filesystem.delete_dir(inside)
    except FileNotFoundError:
        # In Google's store few folders are objects, and Arrow deletes that object, too, after all others.
        if filesystem.get_file_info(inside).type is not fs.FileType.NotFound:
            raise


def move_folder(path: str, to: str) -> None:
    """Move a folder; in an object store its files are copied, then deleted."""
    filesystem, inside = filesystem_of(path)
    _, target = filesystem_of(to)
    if isinstance(filesystem, fs.LocalFileSystem):
        filesystem.move(inside, target)
    else:
        fs.copy_files(inside, target, source_filesystem=filesystem, destination_filesystem=filesystem)
        delete_folder(path)


def folders_in(path: str) -> list[str]:
    """The folders in a folder, by their paths; none where there is no folder."""
    filesystem, inside = filesystem_of(path)
    # In Google's store few folders are objects, and Arrow lists those only: the others are found by their files.
    recursive = filesystem.type_name == "gcs"
    names = set()
    for info in filesystem.get_file_info(fs.FileSelector(inside, allow_not_found=True, recursive=recursive)):
        name, is_below, _ = info.path[len(inside.rstrip("/")) + 1 :].partition("/")
        if is_below or info.type is fs.FileType.Directory:
            names.add(name)
    return [f"{path}/{name}" for name in sorted(names)]


def table_id(path: str) -> str:
    """Id of the Delta table at a path; empty if none opens."""
    try:
        return str(DeltaTable(path).metadata().id)
    except (DeltaError, OSError):
        return ""
