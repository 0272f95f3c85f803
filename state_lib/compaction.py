"""Compaction of a Delta state table: fewer runs, without dead rows.

Two kinds, both beside readers and running epochs:

* **merging runs**: small files of a partition become one, as they are. A bin-packing that delta-rs does in the driver; it
  conflicts with nothing, and each lookup opens fewer files.
* **rewriting a table**: its runs merged into rows, sorted by key, without tombstones and without what has expired. The rows
  are read at one version, so a commit of an epoch in between would be lost. The rewrite is committed by compare and swap on
  that version. What only Spark can write also has the transaction version between those of that epoch and the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import EPOCH, KEY, STATE_WEIGHT, TABLE_ID, VNODE, WEIGHT
from relstate_dagster.state_lib.lake.commit import CommitFailedError, committing, write_deltalake
from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.lake.table import DeltaTable, OpenedTable
from relstate_dagster.state_lib.merge import merge_runs
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_schema import MergeRule
from relstate_dagster.state_lib.tuning import tuning


def has_many_runs(files: Sequence[DataFile]) -> bool:
    """Whether some partition has more small files than a lookup, or a reader, should open."""
    small_files = Counter(frozenset(f.partition.items()) for f in files if f.bytes < tuning().small_run_bytes)
    return bool(small_files) and max(small_files.values()) > tuning().runs_per_partition


def merge_small_runs(opened: OpenedTable) -> int | None:
    """Merge the small files of each partition; returns the commit's version, or ``None``."""
    table = opened.latest()
    before = table.version()
    try:
        table.optimize.compact(target_size=tuning().small_run_bytes)
    except CommitFailedError:
        return None  # an epoch was faster; the next compaction finds what this one would have
    return table.version() if table.version() != before else None


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Which rows of a state table a rewrite leaves out.

    Parameters
    ----------
    until : rows that were last written in this epoch or before it.
    group, by_table : where rows live as long as their group, the group's columns and the table that has one row of each
        group. Rows of groups that this table leaves out are left out.
    """

    until: int
    group: tuple[str, ...] = ()
    by_table: int | None = None


@dataclass(frozen=True)
class ClosedRows:
    """Rows of closed groups, which a rewrite leaves out."""

    condition: Column


def rewrite_tables(
    store: StateStore,
    table_ids: Sequence[int],
    *,
    version: int,
    app_id: str,
    txn_version: int,
    merged_until: Mapping[int, int] | None = None,
    expired: Mapping[int, ExpiredRows | ClosedRows] | None = None,
    by_driver: bool = True,
) -> int | None:
    """Rewrite state tables as their merged rows, unless others commit since ``version``.

    Parameters
    ----------
    version : the version that is read.
    app_id, txn_version : of the view; the version is the odd one after that of the newest epoch in ``version``.
    merged_until : for a table whose change log is read by epoch, the epoch after which rows stay as they are.
    expired : what has expired, of the tables where anything can.
    by_driver : the tables fit into the driver's memory; without it Spark writes.

    Returns
    -------
    The version of the commit; ``None`` where an epoch came first and nothing was written.
    """
    horizons = merged_until or {}
    gone = expired or {}
    rows = reduce(DataFrame.unionByName, [_merged(store, n, version, horizons.get(n), gone.get(n)) for n in table_ids])
    condition = _of_tables(table_ids)
    if by_driver and store.is_plain:
        computed = rows.toArrow().sort_by([(TABLE_ID, "ascending"), (VNODE, "ascending"), (KEY, "ascending")])
        return _swap(store.path, computed, version, condition, app_id, txn_version)
    arranged = rows.repartition(TABLE_ID, VNODE).sortWithinPartitions(TABLE_ID, VNODE, KEY)
    writer = arranged.write.format("delta").mode("overwrite").option("replaceWhere", condition).option("dataChange", "false")
    writer.option("txnAppId", app_id).option("txnVersion", txn_version).save(store.path)
    done = store.files.table.latest()
    # Delta skips the write, without a word, where an epoch has taken a later transaction version in the meantime.
    written = done.version() > version and done.transaction_version(app_id) == txn_version
    return done.version() if written else None


def empty_tables(path: str, table_ids: Sequence[int], *, version: int, app_id: str, txn_version: int) -> bool:
    """Delete all rows of state tables, unless others commit since ``version``.

    Files are removed as a whole, and nothing is read or written but the log.

    Parameters
    ----------
    version, app_id, txn_version : as of :func:`rewrite_tables`.

    Returns
    -------
    Whether they are deleted.
    """
    try:
        DeltaTable(path, version=version).delete(_of_tables(table_ids), commit_properties=committing(app_id, txn_version))
    except CommitFailedError:
        return False
    return True


def _swap(path: str, rows: pa.Table, version: int, condition: str, app_id: str, txn_version: int) -> int | None:
    table = DeltaTable(path, version=version)
    once = committing(app_id, txn_version)
    try:
        write_deltalake(table, rows, mode="overwrite", predicate=condition, commit_properties=once)
    except CommitFailedError:
        return None
    return version + 1


def _of_tables(table_ids: Sequence[int]) -> str:
    return f"{TABLE_ID} IN ({', '.join(map(str, table_ids))})"


def _merged(
    store: StateStore, table_id: int, version: int, merged_until: int | None, expired: ExpiredRows | ClosedRows | None
) -> DataFrame:
    """Stored form of a table's merged rows.

    A row that is retracted more often than it was inserted ends the job.

    Joins read runs unmerged and do not see it.
    """
    storage = store.storage_table(table_id, version=version)
    schema = storage.desc.schema
    runs = storage.runs()
    old = runs if merged_until is None else runs.where(F.col(EPOCH) <= merged_until)
    merged = merge_runs(old, schema, keep_epoch=True)
    if expired is not None:
        merged = _unexpired(store, version, merged, expired)
    if schema.merge is MergeRule.SUM:
        problem = F.lit(
            f"{storage.place()}: a row is retracted more often than it was inserted, so rows of the state were lost; "
            "rebuild the view with --full-refresh"
        )
        broken = F.col(WEIGHT) < 0
        merged = merged.withColumn(WEIGHT, F.when(broken, F.raise_error(problem).cast("bigint")).otherwise(F.col(WEIGHT)))
    else:
        merged = merged.withColumn(WEIGHT, F.lit(1).cast("bigint"))
    stored = store.stored_form(table_id, merged, F.col(EPOCH))
    if merged_until is None:
        return stored
    recent = runs.where(F.col(EPOCH) > merged_until).withColumnRenamed(STATE_WEIGHT, WEIGHT)
    return stored.unionByName(store.stored_form(table_id, recent, F.col(EPOCH)))


def _unexpired(store: StateStore, version: int, rows: DataFrame, expired: ExpiredRows | ClosedRows) -> DataFrame:
    if isinstance(expired, ClosedRows):
        return rows.where(~expired.condition)
    if expired.by_table is None:
        return rows.where(F.col(EPOCH) > expired.until)
    table = store.storage_table(expired.by_table, version=version)
    groups = merge_runs(table.runs(), table.desc.schema, keep_epoch=True).where(F.col(EPOCH) > expired.until)
    names = [f"_group_{n}" for n in range(len(expired.group))]
    groups = groups.select(*(F.col(quoted(ours)).alias(name) for ours, name in zip(expired.group, names, strict=True)))
    same = [F.col(quoted(ours)).eqNullSafe(F.col(name)) for ours, name in zip(expired.group, names, strict=True)]
    return rows.join(groups, reduce(Column.__and__, same), "left_semi")
