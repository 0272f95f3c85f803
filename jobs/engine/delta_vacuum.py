"""Delta's VACUUM with the retention that some versions need."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from typing import Final

from pyspark.sql import SparkSession

from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.lake.folders import NO_FILES, StoredFiles, stored_files
from relstate_dagster.state_lib.lake.table import DeltaTable, TableNotFoundError

_SECONDS_PER_HOUR: Final = 3600
#: Commits that VACUUM makes: of what it is about to do, and of what it has done.
_OF_VACUUM: Final = frozenset({"VACUUM START", "VACUUM END"})


def vacuum_table(session: SparkSession, path: str, versions: Collection[int], hours: int) -> tuple[StoredFiles, StoredFiles]:
    """Delete files of a Delta table that neither some versions nor the newest need.

    Parameters
    ----------
    session : its retention check is off.
    hours : what was replaced no longer ago than this stays as well.

    Returns
    -------
    The files there were before, and after. None if there is no table.
    """
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        return NO_FILES, NO_FILES  # a view before its backfill
    before = stored_files(path)
    if before.files <= len(table.file_uris()):
        return before, before  # every file is of the newest version: no job
    oldest = min(versions, default=table.version())
    if oldest < table.version():
        # Where Delta has cleaned up the log of the first of them, no version before them can be read any more.
        later = [entry for entry in table.history() if int(entry["version"]) > oldest]
        # The first of these commits, but for those of VACUUM itself, can have removed a file of the oldest retained version.
        first = min((float(e["timestamp"]) / 1000 for e in later if e["operation"] not in _OF_VACUUM), default=None)
        if first is not None:
            # Delta rounds to hours, so the next full one.
            hours = max(hours, math.ceil((time.time() - first) / _SECONDS_PER_HOUR))
    session.sql(f"VACUUM {table_reference(path)} RETAIN {hours} HOURS").collect()
    return before, stored_files(path)
