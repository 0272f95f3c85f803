"""Publishing: apply an epoch's stored change set to the view's table, exactly once.

The change set is read back from the state commit at its fixed version, so a repeated publish applies the same rows. It
has one row a key: the published table's hidden ``_key`` is the key of the view's state table (encoded sort key and stream
key). A view without a stream key may hold equal rows; there ``_key`` also numbers the copies, and a change from n to m
copies inserts or deletes the copies between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.targets.protocol import IS_THERE, OP, Changes, Published, TargetWriter
from relstate_dagster.jobs.view_epoch.findings import ChangeFound
from relstate_dagster.jobs.view_epoch.shown_rows import NO_ROWS, ShownRows, changed_rows
from relstate_dagster.jobs.view_epoch.steps import Publish, WriteMode, Writer
from relstate_dagster.jobs.view_epoch.view_changes import computed_changes, stored_changes
from relstate_dagster.jobs.view_epoch.view_epoch import StateCommit, mv_rows
from relstate_dagster.state_lib.collected import collected
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore

#: Modes in which rows of the published table are looked for.
_REPLACES_SOME: Final = (WriteMode.MERGE, WriteMode.REPLACE)


def publish(
    session: SparkSession,
    merging: Callable[[int], AbstractContextManager[SparkSession]],
    target: TargetWriter,
    files: StateFiles,
    view: ViewEntry,
    commit: StateCommit,
    epoch: int,
    step: Publish,
) -> tuple[Published, ShownRows, Publish]:
    """Apply the change set of an epoch to the published table.

    Rows that are new are appended, whatever the table holds; those that go are looked for in it by their keys.

    Parameters
    ----------
    session : used for this one commit; its transaction settings are set and unset here.
    merging : lends a session for changing some rows of a large table, with a number of tasks a shuffle.
    files, commit : the state that holds the change set, and the commit that wrote it.
    step : as planned.

    Returns
    -------
    What was published, some of its rows if the driver has written them, and the step as it was done.

    Raises
    ------
    EpochError : another program committed to the table meanwhile.
    """
    step = step.for_target(target.found)
    if target.done is not None:
        return Published(target.done, 0, 0), NO_ROWS, step
    failpoints.reached("before_publish")
    target.set_properties(session)
    rows = _held_changes(session, files, view, commit, epoch, step) if target.found.driver_writes else None
    changed = ChangeFound(mv_rows(view, commit))
    if rows is not None:
        keys = rows.filter(rows[IS_THERE])[VIEW_KEY]
        changed = replace(changed, goes=len(keys) > 0, key_bytes=keys.nbytes, gone_rows=len(keys))
        step = step.for_changes(replace(changed, is_held=True))
        if step.writer is Writer.DRIVER:
            done = _write(session, target, rows, step.mode)
            shown = changed_rows(rows.drop_columns([VIEW_KEY, IS_THERE]), OP)
            return done, shown if done.rows_inserted or done.rows_deleted else NO_ROWS, step
    with merging(step.tasks) if step.mode in _REPLACES_SOME else nullcontext(session) as writing:
        store = StateStore(writing, files, view.tables)
        changes = stored_changes(store, view, epoch, commit.version)
        if rows is None:
            found_keys: pa.ChunkedArray | None = None
            if step.may_replace_all(changed.rows):
                changed = replace(changed, gone_rows=changes.where(F.col(IS_THERE)).count())
            if step.mode is WriteMode.MERGE and not step.replaces_all(changed):
                rows = collected(changes.where(F.col(IS_THERE)).select(VIEW_KEY), step.most_key_bytes)
                found_keys = None if rows is None else rows.column(0)
            if found_keys is not None:
                keys = found_keys
                changed = replace(changed, goes=len(keys) > 0, key_bytes=keys.nbytes)
            step = step.for_changes(changed)
        if step.mode is WriteMode.REPLACE:
            return target.replace(writing, changes, keys), NO_ROWS, step
        return _write(writing, target, changes, step.mode), NO_ROWS, step


def _write(session: SparkSession, target: TargetWriter, changes: Changes, mode: WriteMode) -> Published:
    ways = {WriteMode.APPEND: target.append, WriteMode.MERGE: target.merge, WriteMode.OVERWRITE: target.overwrite}
    return ways[mode](session, changes)


def _held_changes(
    session: SparkSession, files: StateFiles, view: ViewEntry, commit: StateCommit, epoch: int, step: Publish
) -> pa.Table | None:
    """The change set as rows of the driver, if it writes or already has them."""
    if step.mode is WriteMode.OVERWRITE:
        return None
    store = StateStore(session, files, view.tables)
    rows = None if view.built_until is not None else computed_changes(store, view, commit.stored)
    if rows is None and step.is_by_driver(mv_rows(view, commit)):
        return collected(stored_changes(store, view, epoch, commit.version), step.limits.collected_bytes)
    return rows
