"""Upkeep of source indexes, after an epoch has published its views.

What an index lacks of a version an epoch reads beside it, so it is brought up to date only where that has become much.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from contextlib import suppress

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.entries import SourceEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.jobs.sources.pins import ChangeRange, Pin
from relstate_dagster.jobs.sources.source_index import SourceIndex
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads
from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.tuning import tuning

_log = logging.getLogger(__name__)


def refresh_indexes(
    spark: SparkSession,
    warehouse: Warehouse,
    state: CatalogState,
    reads: SourceReads,
    claims: Claims,
    but: Collection[str] = (),
) -> None:
    """Bring the indexes of sources to the newest pinned versions.

    Indexes that another run is working on are left out.

    An index is of the columns that the views of today read.

    Parameters
    ----------
    but : sources whose newest pin may be an older one than that of their index.
    """
    pins = state.last_pins
    for entry in state.sources.values():
        columns = _columns_read(state, entry)
        if not entry.indexes or not columns or entry.name not in pins or entry.name in but:
            continue
        for column in entry.indexes:
            index = reads.index(warehouse, entry, column)
            pin, contents = pins[entry.name], index.contents
            if contents is not None and contents.serves(pin, columns) and contents.pin.is_same(pin):
                continue
            if claims.claimed([f"the index of {entry.name} by {column}"]) is not None:
                _refresh(spark, warehouse, entry, index, pin, columns, reads)
                claims.give_back()


def _columns_read(state: CatalogState, entry: SourceEntry) -> set[str]:
    views = [v for v in state.views.values() if entry.name in v.reads]
    return set().union(*(used_columns(view.plan).get(entry.name, set()) for view in views)) - {ROW_ID}


def _refresh(
    spark: SparkSession,
    warehouse: Warehouse,
    entry: SourceEntry,
    index: SourceIndex,
    pin: Pin,
    columns: set[str],
    reads: SourceReads,
) -> None:
    started = time.perf_counter()
    source, contents = reads.source(warehouse, entry), index.contents
    found: ChangeRange | None = None
    if contents is not None and contents.serves(pin, columns):
        if contents.pin.is_same(pin):
            return
        with suppress(SourceError):  # or what has changed since cannot be read any more
            found = reads.range(source, contents.pin, pin, append_only=lambda: False)
    rows = 0 if found is None else found.rows_inserted + found.rows_deleted
    if (
        found is not None
        and contents is not None
        and pin.version - contents.version < tuning().index_commits
        and rows < tuning().index_appended_rows
    ):
        return
    session = session_for(spark, {}, Workload.FULL, is_local=warehouse.is_local)
    if (
        found is None
        or contents is None
        or contents.appended + rows > tuning().index_appended_share * contents.rows + tuning().index_appended_rows
    ):
        _log.info("building the index of %s by %s", entry.name, index.column)
        index.build(session, source, pin, columns)
        _log.info("built the index of %s by %s in %.1f s", entry.name, index.column, time.perf_counter() - started)
        return
    index.append(source.changes(session, contents.pin, pin, found), pin, run_limits().driver.collected_bytes)
    index.merge_small_files()
