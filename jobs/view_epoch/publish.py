"""Publishing: apply an epoch's stored change set to the view's table, exactly once.

The change set is read back from the state commit at its fixed version, so a repeated publish applies the same rows. It
has one row a key: the published table's hidden ``_key`` is the key of the view's state table (encoded sort key and stream
key). A view without a stream key may hold equal rows; there ``_key`` also numbers the copies, and a change from n to m
copies inserts or deletes the copies between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import Recorded, ViewEntry, ViewVersions
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.engine.workloads import forget_table, transaction
from relstate_dagster.jobs.view_epoch.chain import Chain, EpochCommit, Fence
from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run
from relstate_dagster.jobs.view_epoch.findings import ChangeFound, TargetFound
from relstate_dagster.jobs.view_epoch.published import IS_THERE, OP, Published, append_changes, merge_changes
from relstate_dagster.jobs.view_epoch.replaced_keys import few_keys, key_condition
from relstate_dagster.jobs.view_epoch.steps import Publish, WriteMode, Writer
from relstate_dagster.jobs.view_epoch.view_changes import computed_changes, stored_changes
from relstate_dagster.jobs.view_epoch.view_epoch import StateCommit, app_id, epoch_txn_version, mv_rows
from relstate_dagster.jobs.view_epoch.view_table import (
    commented,
    create_view_table,
    driver_writes,
    has_layout,
    set_properties,
)
from relstate_dagster.state_lib.collected import collected
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.errors import EpochError, StateError
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.lake.folders import delete_folder, is_table
from relstate_dagster.state_lib.lake.log import DeltaLog, rows_changed, rows_copied
from relstate_dagster.state_lib.lake.table import OpenedTable
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore

#: Modes in which rows of the published table are looked for.
_REPLACES_SOME: Final = (WriteMode.MERGE, WriteMode.REPLACE)


@dataclass(frozen=True, slots=True)
class Target:
    """The published table that a view's change set is to be applied to.

    Parameters
    ----------
    known : its newest version that the catalog knows, upkeep since included; what is written is written on it.
    is_new : the table is empty. Otherwise ``replaces`` says whether the rows of an earlier generation are to be replaced.
    done : the version of the commit that an earlier try has made.
    """

    table: OpenedTable
    chain: Chain
    wanted: EpochCommit
    known: int
    is_new: bool = False
    replaces: bool = False
    done: int | None = None


def published_chain(table: OpenedTable, name: str, fence: Fence = lambda: None) -> Chain:
    """The commits of a view's published table."""
    return Chain(table, name, "published table", is_restorable=True, fence=fence)


def target_of(
    session: SparkSession,
    table: OpenedTable,
    view: ViewEntry,
    wanted: EpochCommit,
    before: ViewVersions | None,
    fence: Fence,
    *,
    first: bool,
) -> Target:
    """Find the published table as the catalog knows it, or make it.

    Parameters
    ----------
    table : the published table, there or not.
    before : what readers see of the view today, be it of an earlier generation; ``None`` where they see nothing.
    fence : as of :class:`.jobs.view_epoch.chain.Chain`.
    first : this is the first epoch of its generation.

    Raises
    ------
    StateError : the table is damaged, or somebody else changed its rows.
    """
    chain = published_chain(table, view.name, fence)
    recorded = (before or ViewVersions()).published_commit
    if first:
        return _of_new_generation(session, table, chain, view, wanted, recorded)
    if not is_table(table.path):
        raise StateError(f"view {view.name}: its published table at {table.path} is gone; {chain.rebuild}")
    since = chain.since(recorded)
    done = since.made_by(wanted)
    if done is not None or since.is_clean:
        return Target(table, chain, wanted, since.known, done=done)
    if since.foreign is not None and not view.restores_published:
        raise StateError(f"view {view.name}: {chain.changed_by_others(since, recorded)}")
    return Target(table, chain, wanted, chain.restore(since).known)


def _of_new_generation(
    session: SparkSession, table: OpenedTable, chain: Chain, view: ViewEntry, wanted: EpochCommit, recorded: Recorded
) -> Target:
    """The published table before the first epoch of a generation.

    There is none, or readers see it, or it is a leftover.
    """
    if not is_table(table.path):
        return _made(session, table.path, view, wanted)
    try:
        since = chain.since(recorded)
    except StateError:  # damaged; that is what the view is rebuilt for
        return _made_again(session, table.path, view, wanted)
    done = since.made_by(wanted)
    if done is not None:
        return Target(table, chain, wanted, since.known, done=done)
    if recorded.version is not None and has_layout(table, view) and _opens(session, table.path):
        # Readers of a view that is rebuilt go on until the one commit that replaces its rows.
        return Target(table, chain, wanted, since.newest, replaces=True)
    return _made_again(session, table.path, view, wanted)


def _opens(session: SparkSession, path: str) -> bool:
    """Whether Spark can read the log of a table."""
    try:
        session.sql(f"DESCRIBE DETAIL {table_reference(path)}").collect()
    except (PySparkException, Py4JJavaError) as error:
        if ends_the_run(error) is not None:
            raise
        return False
    return True


def _made(session: SparkSession, path: str, view: ViewEntry, wanted: EpochCommit) -> Target:
    create_view_table(session, path, view)
    table = OpenedTable(path)
    return Target(table, published_chain(table, view.name), wanted, table.latest().version(), is_new=True)


def _made_again(session: SparkSession, path: str, view: ViewEntry, wanted: EpochCommit) -> Target:
    """A new table in place of a useless one.

    That is of a dropped view, damaged, or laid out differently.
    """
    delete_folder(path)
    forget_table(session, path)
    return _made(session, path, view, wanted)


def publish(
    session: SparkSession,
    merging: Callable[[int], AbstractContextManager[SparkSession]],
    target: Target,
    files: StateFiles,
    view: ViewEntry,
    commit: StateCommit,
    step: Publish,
) -> tuple[Published, Publish]:
    """Apply the change set of an epoch to the published table.

    Rows that are new are appended, whatever the table holds; those that go are looked for in it by their keys.

    Parameters
    ----------
    session : used for this one commit; its transaction settings are set and unset here.
    merging : lends a session for changing some rows of a large table, with so many tasks a shuffle.
    files, commit : the state that holds the change set, and the commit that wrote it.
    step : as planned.

    Returns
    -------
    What was published, and the step as it was done.

    Raises
    ------
    EpochError : somebody else committed to the table meanwhile.
    """
    opened = target.table.opened()
    found = TargetFound(target.table.total_bytes(), driver_writes(view, opened), target.is_new, target.replaces)
    step = step.for_target(found)
    if target.done is not None:
        return Published(target.done, 0, 0), step
    failpoints.reached("before_publish")
    if not target.is_new and set_properties(session, target.table, view):
        target = replace(target, known=target.chain.after(target.known).known)
    rows = _held_changes(session, files, view, commit, target.wanted.epoch, step) if found.driver_writes else None
    changed = ChangeFound(mv_rows(view, commit))
    if rows is not None:
        keys = rows.filter(rows[IS_THERE])[VIEW_KEY]
        step = step.for_changes(replace(changed, is_held=True, goes=len(keys) > 0, key_bytes=keys.nbytes))
        if step.writer is Writer.DRIVER:
            _check_partitions(rows, view)
            return _publish_by_driver(target, rows, view, step.mode), step
    with merging(step.tasks) if step.mode in _REPLACES_SOME else nullcontext(session) as writing:
        store = StateStore(writing, files, view.tables)
        changes = _checked_partitions(stored_changes(store, view, target.wanted.epoch, commit.version), view)
        if rows is None:
            found_keys: pa.ChunkedArray | None = None
            if step.mode is WriteMode.MERGE:
                found_keys = few_keys(changes.where(F.col(IS_THERE)).select(VIEW_KEY), step.most_key_bytes)
            if found_keys is not None:
                keys = found_keys
                changed = replace(changed, goes=len(keys) > 0, key_bytes=keys.nbytes)
            step = step.for_changes(changed)
        named = keys if step.mode is WriteMode.REPLACE else None
        return _publish_by_spark(writing, target, changes, view, step.mode, named), step


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


def _publish_by_driver(target: Target, rows: pa.Table, view: ViewEntry, mode: WriteMode) -> Published:
    table, app = target.table, app_id(view)
    apply = append_changes if mode is WriteMode.APPEND else merge_changes
    number = epoch_txn_version(target.wanted.epoch, table.transaction_version(app))
    return apply(table, rows, app, number, target.wanted.to_json(), target.chain.expect(target.known))


def _partition_texts(view: ViewEntry) -> list[str]:
    """Text columns that partition a view's table.

    Delta reads an empty text there as NULL.
    """
    plan = view.plan
    types = {o.name: plan.field_named(o.column).data_type for o in plan.output}
    return [name for name in view.layout.partitioned_by if types[name] == "string"]


def _no_empty_text(view: ViewEntry, column: str) -> str:
    return (
        f"view {view.name}: a row has an empty text in {column}, by which the view is PARTITIONED, and Delta stores it as NULL "
        f"there; use CLUSTER BY ({column})"
    )


def _check_partitions(rows: pa.Table, view: ViewEntry) -> None:
    for column in _partition_texts(view):
        if pc.any(pc.equal(rows[column], "")).as_py():
            raise StateError(_no_empty_text(view, column))


def _checked_partitions(changes: DataFrame, view: ViewEntry) -> DataFrame:
    for column in _partition_texts(view):
        value = F.col(quoted(column))
        problem = F.raise_error(F.lit(_no_empty_text(view, column))).cast("string")
        changes = changes.withColumn(column, F.when(value == "", problem).otherwise(value))
    return changes


def _publish_by_spark(
    session: SparkSession,
    target: Target,
    changes: DataFrame,
    view: ViewEntry,
    mode: WriteMode,
    keys: pa.ChunkedArray | None,
) -> Published:
    """Apply changes of any size.

    ``keys`` are those of rows that go, where they are replaced by key.
    """
    table, app, metadata = target.table, app_id(view), target.wanted.to_json()
    txn_version = epoch_txn_version(target.wanted.epoch, table.transaction_version(app))
    target.chain.expect(target.known)(table.latest())
    if mode is WriteMode.MERGE:
        _merge(session, table.path, changes, view, app, txn_version, metadata)
    else:
        rows = commented(changes.where(F.col(OP) > 0).drop(OP, IS_THERE), view)
        save = "append" if mode is WriteMode.APPEND else "overwrite"
        writer = rows.write.format("delta").mode(save).option("userMetadata", metadata)
        if mode is WriteMode.OVERWRITE:
            # A new generation replaces the rows of the old one, and may have other columns.
            writer = writer.option("overwriteSchema", "true").partitionBy(*view.layout.partitioned_by)
        elif keys is not None:
            writer = writer.option("replaceWhere", key_condition(keys))
        writer.option("txnAppId", app).option("txnVersion", txn_version).save(table.path)
    # Spark does not say which version it wrote, nor does every commit beside its own make it fail.
    made = target.chain.after(target.known)
    version = made.made_by(target.wanted)
    if version is None:
        if not made.is_clean:
            target.chain.restore(made)
        problem = f"epoch {target.wanted.epoch} was not published, {target.chain.describe(made)}"
        raise EpochError(f"view {view.name}: {problem}; nothing was lost, run again")
    actions = DeltaLog(table.path).commit(version)
    inserted, deleted = rows_changed(actions)
    return Published(version, inserted, deleted, copied=rows_copied(actions))


def _merge(
    session: SparkSession, path: str, changes: DataFrame, view: ViewEntry, app: str, txn_version: int, metadata: str
) -> None:
    changes.createOrReplaceTempView("_relstate_changes")
    names = [*(quoted(o.name) for o in view.plan.output), quoted(VIEW_KEY)]
    sets = ", ".join(f"v.{n} = c.{n}" for n in names)
    values = ", ".join(f"c.{n}" for n in names)
    with transaction(session, app, txn_version, metadata):
        session.sql(
            f"MERGE INTO {table_reference(path)} v USING _relstate_changes c ON v.{quoted(VIEW_KEY)} = c.{quoted(VIEW_KEY)} "
            f"WHEN MATCHED AND c.{OP} < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND c.{OP} > 0 THEN INSERT ({', '.join(names)}) VALUES ({values})"
        )
    session.catalog.dropTempView("_relstate_changes")
