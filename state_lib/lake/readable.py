"""Whether a version of a Delta table is still readable, without Spark."""

from __future__ import annotations

from pyarrow import fs

from relstate_dagster.state_lib.errors import first_line
from relstate_dagster.state_lib.lake.address import Address, filesystem_of, full_path
from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable


def why_unreadable(path: str, version: int) -> str | None:
    """Reason why a version of a table is unreadable; ``None`` if all files exist."""
    try:
        table = DeltaTable(path, version=version)
    except (DeltaError, OSError) as error:
        return f"version {version} cannot be opened ({first_line(error)})"
    address = Address.parse(path).spark
    files = [full_path(address, name) for name in table.get_add_actions()["path"].to_pylist()]
    if not files:
        return None
    filesystem = filesystem_of(files[0])[0]
    found = filesystem.get_file_info([filesystem_of(file)[1] for file in files])
    gone = [file for file, info in zip(files, found, strict=True) if info.type is fs.FileType.NotFound]
    if not gone:
        return None
    return f"{len(gone)} of the {len(files)} files of version {version} are gone (vacuumed away)"
