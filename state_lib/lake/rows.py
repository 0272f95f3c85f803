"""The rows of a Delta table at a version, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake.exceptions import DeltaProtocolError

from relstate_dagster.state_lib.lake.statistics import data_files
from relstate_dagster.state_lib.lake.table import DeltaTable


def rows_at(path: str, version: int, columns: Sequence[str], *, most_bytes: int | None = None) -> pa.Table | None:
    """Read columns of a version, in order.

    ``None`` where only Spark can, or its files are larger.

    Parameters
    ----------
    most_bytes
        Of the files with all of their columns.

    Raises
    ------
    DeltaError
        There is no such version any more.
    """
    table = DeltaTable(path, version=version)
    # delta-rs gives NULLs for columns that have other names in the files, and says nothing.
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return None
    if most_bytes is not None and sum(file.bytes for file in data_files(table)) > most_bytes:
        return None
    try:
        return table.to_pyarrow_table(columns=list(columns))
    except DeltaProtocolError:
        return None  # a feature that delta-rs does not know
