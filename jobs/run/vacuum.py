"""Deletes files of views, state, catalog and indexes that no retained epoch needs.

Delta's own VACUUM deletes what stopped being part of a table longer than a retention ago. What is added here is how long
that has to be: the versions of the epochs that are retained stay readable. The views, and those over them, are claimed
meanwhile, and the maintenance lock, which a compaction holds: neither has files on disk that no commit names yet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyarrow import fs
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.session import SHUFFLE_PARTITIONS
from relstate_dagster.state_lib.constants import RETAINED_HOURS
from relstate_dagster.state_lib.lake.address import filesystem_of, table_reference
from relstate_dagster.state_lib.lake.folders import delete_folder, folders_in
from relstate_dagster.state_lib.lake.table import DeltaTable, TableNotFoundError

_SECONDS_PER_HOUR = 3600
#: Commits that VACUUM makes: of what it is about to do, and of what it has done.
_OF_VACUUM = frozenset({"VACUUM START", "VACUUM END"})


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """Files deleted for one view, for the ``catalog``, or for the ``indexes``."""

    name: str
    files_deleted: int
    bytes_deleted: int
    files_left: int
    bytes_left: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Stored:
    """Data files under a path, whether a version names them or not."""

    files: int
    bytes: int

    def __add__(self, other: _Stored) -> _Stored:
        return _Stored(self.files + other.files, self.bytes + other.bytes)


_NOTHING = _Stored(0, 0)
#: What was there before, and after.
_Vacuumed: TypeAlias = tuple[_Stored, _Stored]


def vacuum(
    session: SparkSession,
    warehouse: Warehouse,
    state: CatalogState,
    views: Sequence[str],
    *,
    epochs: int | None = None,
    hours: int = RETAINED_HOURS,
) -> Iterator[VacuumReport]:
    """Delete files that no retained epoch needs, view by view.

    Then those that the catalog no longer needs.

    Parameters
    ----------
    session : its retention check is switched off; used for nothing else.
    epochs : how many epochs of each view stay readable; by default all that the catalog remembers.
    hours : what a newer version replaced no longer ago than this stays as well.
    """
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # Folders are listed by as many tasks as this, 10,000 by default and whatever there is to list.
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", session.conf.get(SHUFFLE_PARTITIONS) or "1")
    for name in views:
        started = time.perf_counter()
        view = state.views[name]
        versions = [state.epochs[e].versions[name] for e in _retained(state, view, epochs)]
        state_path = warehouse.state_path(view)
        kept = {state_path, *(warehouse.state_path(v) for v in state.rebuilds.values() if v.name == name)}
        done = [
            (_delete_folders(warehouse.states_path(name), kept), _NOTHING),
            _vacuum_table(session, state_path, [v.state_version for v in versions], hours),
            _vacuum_table(session, warehouse.view_path(name), [v.view_version for v in versions], hours),
        ]
        yield _report(name, done, started)
    started = time.perf_counter()
    used = {view.planned.digest for view in (*state.views.values(), *state.rebuilds.values())}
    plans = warehouse.catalog.plans
    before = _stored(plans.path)
    plans.delete_unused(used, hours)
    done = [_vacuum_table(session, warehouse.catalog.path, [], hours), (before, _stored(plans.path))]
    yield _report("catalog", done, started)
    started = time.perf_counter()
    declared = {warehouse.index_path(s.name, column) for s in state.sources.values() for column in s.indexes}
    done = [_delete_undeclared(warehouse.indexes_path, declared)]
    done += [_vacuum_table(session, path, [], hours) for path in sorted(declared)]
    if any(before.files for before, _ in done):
        yield _report("indexes", done, started)


def _retained(state: CatalogState, view: ViewEntry, epochs: int | None) -> list[int]:
    """The last epochs of a view, and those that views over it continue from."""
    wanted = set(view.epochs if epochs is None else view.epochs[-epochs:])
    readers = [state.views[n].last_epoch for n in state.dependents(view.name) if n in state.views]
    oldest = min((e for e in readers if e is not None), default=None)
    if oldest is not None:
        wanted |= {e for e in view.epochs if e >= oldest}
    return sorted(e for e in wanted if view.name in state.epochs[e].versions)


def _vacuum_table(session: SparkSession, path: str, versions: Sequence[int | None], hours: int) -> _Vacuumed:
    """Delete files of a Delta table that neither some versions nor the newest need."""
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        return _NOTHING, _NOTHING  # a view before its backfill
    before = _stored(path)
    if before.files <= len(table.file_uris()):
        return before, before  # every file is of the newest version: no job
    oldest = min((v for v in versions if v is not None), default=table.version())
    if oldest < table.version():
        # Where Delta has cleaned up the log of the first of them, no version before them can be read any more.
        later = [entry for entry in table.history() if int(entry["version"]) > oldest]
        # The first of these commits, but for those of VACUUM itself, can have removed a file of the oldest retained version.
        first = min((float(e["timestamp"]) / 1000 for e in later if e["operation"] not in _OF_VACUUM), default=None)
        if first is not None:
            # Delta rounds to hours, so the next full one.
            hours = max(hours, math.ceil((time.time() - first) / _SECONDS_PER_HOUR))
    session.sql(f"VACUUM {table_reference(path)} RETAIN {hours} HOURS").collect()
    return before, _stored(path)


def _delete_undeclared(indexes_path: str, declared: set[str]) -> _Vacuumed:
    """Delete the indexes that no source declares any more."""
    of_sources = [_delete_folders(source, declared) for source in folders_in(indexes_path)]
    return sum(of_sources, _NOTHING), _NOTHING


def _delete_folders(path: str, kept: set[str]) -> _Stored:
    """Delete the folders in a folder but for some; return their contents."""
    deleted = _NOTHING
    for folder in folders_in(path):
        if folder not in kept:
            deleted += _stored(folder)
            delete_folder(folder)
    return deleted


def _stored(path: str) -> _Stored:
    filesystem, root = filesystem_of(path)
    found = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
    # Files with a dot in front are checksums that Spark puts beside what it writes to a local disk.
    files = [f for f in found if f.type is fs.FileType.File and not f.base_name.startswith(".")]
    data = [f.size for f in files if "/_delta_log/" not in f.path]
    return _Stored(len(data), sum(data))


def _report(name: str, done: Sequence[_Vacuumed], started: float) -> VacuumReport:
    before = sum((b for b, _ in done), _NOTHING)
    after = sum((a for _, a in done), _NOTHING)
    return VacuumReport(
        name,
        before.files - after.files,
        before.bytes - after.bytes,
        after.files,
        after.bytes,
        time.perf_counter() - started,
    )
