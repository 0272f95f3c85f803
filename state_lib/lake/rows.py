"""The rows of a Delta table at a version, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake.exceptions import DeltaProtocolError

from relstate_dagster.state_lib.lake.table import DeltaTable


def rows_at(path: str, version: int, columns: Sequence[str]) -> pa.Table | None:
    """Read some columns of a version, in the order asked for; ``None`` where only Spark can.

    Raises
    ------
    DeltaError
        There is no such version any more.
    """
    table = DeltaTable(path, version=version)
    # delta-rs gives NULLs for columns that have other names in the files, and says nothing.
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        return None
    try:
        return table.to_pyarrow_table(columns=list(columns))
    except DeltaProtocolError:
        return None  # a feature that delta-rs does not know
