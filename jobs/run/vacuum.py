"""Deletes files of views, state, catalog and indexes that no retained epoch needs.

Delta's own VACUUM deletes what stopped being part of a table longer than a retention ago. What is added here is how long
that has to be: the versions of the epochs that are retained stay readable. The views, and those over them, are claimed
meanwhile, and the maintenance lock, which a compaction holds: neither has files on disk that no commit names yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.delta_vacuum import vacuum_table
from relstate_dagster.jobs.engine.session import SHUFFLE_PARTITIONS
from relstate_dagster.state_lib.constants import RETAINED_HOURS
from relstate_dagster.state_lib.lake.folders import NO_FILES, StoredFiles, delete_folder, folders_in, stored_files


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """Files deleted for one view, for the ``catalog``, or for the ``indexes``."""

    name: str
    files_deleted: int
    bytes_deleted: int
    files_left: int
    bytes_left: int
    seconds: float


#: Files that were there before, and after.
_Vacuumed: TypeAlias = tuple[StoredFiles, StoredFiles]


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
        retained = [state.epochs[e].versions[name] for e in _retained(state, view, epochs)]
        published = [v.view_version for v in retained if v.view_version is not None]
        state_path = warehouse.state_path(view)
        kept = {state_path, *(warehouse.state_path(v) for v in state.rebuilds.values() if v.name == name)}
        done = [
            (_delete_folders(warehouse.states_path(name), kept), NO_FILES),
            vacuum_table(session, state_path, [v.state_version for v in retained if v.state_version is not None], hours),
            warehouse.target(name).delete_unused_files(session, published, hours),
        ]
        yield _report(name, done, started)
    started = time.perf_counter()
    used = {view.planned.digest for view in (*state.views.values(), *state.rebuilds.values())}
    plans = warehouse.catalog.plans
    before = stored_files(plans.path)
    plans.delete_unused(used, hours)
    done = [vacuum_table(session, warehouse.catalog.path, [], hours), (before, stored_files(plans.path))]
    yield _report("catalog", done, started)
    started = time.perf_counter()
    declared = {warehouse.index_path(s.name, column) for s in state.sources.values() for column in s.indexes}
    done = [_delete_undeclared(warehouse.indexes_path, declared)]
    done += [vacuum_table(session, path, [], hours) for path in sorted(declared)]
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


def _delete_undeclared(indexes_path: str, declared: set[str]) -> _Vacuumed:
    """Delete the indexes that no source declares any more."""
    of_sources = [_delete_folders(source, declared) for source in folders_in(indexes_path)]
    return sum(of_sources, NO_FILES), NO_FILES


def _delete_folders(path: str, kept: set[str]) -> StoredFiles:
    """Delete the folders in a folder but for some; return their contents."""
    deleted = NO_FILES
    for folder in folders_in(path):
        if folder not in kept:
            deleted += stored_files(folder)
            delete_folder(folder)
    return deleted


def _report(name: str, done: Sequence[_Vacuumed], started: float) -> VacuumReport:
    before = sum((b for b, _ in done), NO_FILES)
    after = sum((a for _, a in done), NO_FILES)
    return VacuumReport(
        name,
        before.files - after.files,
        before.bytes - after.bytes,
        after.files,
        after.bytes,
        time.perf_counter() - started,
    )
