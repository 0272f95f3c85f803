"""Publishing: the stored change set of an epoch applied to the view's Delta table, once, however often it is tried.

The change set is read back from the state commit at its fixed version, so a repeated publish applies the same rows. It
has one row a key: the published table's hidden ``_key`` is the key of the view's state table (encoded sort key and stream
key). A view without a stream key may hold equal rows; there ``_key`` also numbers the copies, and a change from n to m
copies inserts or deletes the copies between.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs import failpoints
from jobs.catalog.entries import ViewEntry
from jobs.epoch.published import OP, Published, append_changes, merge_changes
from jobs.epoch.sessions import transaction
from jobs.epoch.view_epoch import StateCommit, app_id, epoch_txn_version, plan_of
from jobs.operators.context import columns_of
from jobs.planner.nodes import quoted
from state_lib.collected import collected
from state_lib.constants import EPOCH, EPOCH_COLUMN, KEY, STATE_WEIGHT, TABLE_ID, VIEW_KEY, WEIGHT_COLUMN
from state_lib.delta_layout import LOG_PROPERTIES
from state_lib.errors import EpochError
from state_lib.lake.commit import create_plain_table, is_plain
from state_lib.lake.log import DeltaLog, rows_changed
from state_lib.lake.table import OpenedTable
from state_lib.literals import property_list, text_literal
from state_lib.row_encoding import parse_type
from state_lib.state_store import StateStore

_REFUSED_BY_DELTA = set(" ,;{}()\n\t=")

#: A view up to this size is merged into by the driver; a larger one by Spark, which rewrites only rows and not files.
_DRIVER_BYTES = 64 * 1024 * 1024


def create_view_table(session: SparkSession, path: str, view: ViewEntry) -> None:
    """Create the empty Delta table of a view, change data feed on."""
    plan = plan_of(view)
    properties = {"delta.enableChangeDataFeed": "true", **LOG_PROPERTIES}
    note = "identity of the row, not part of the view"
    if written_by_driver(view):
        fields = [T.StructField(o.name, parse_type(plan.field_named(o.column).data_type)) for o in plan.output]
        schema = T.StructType([*fields, T.StructField(VIEW_KEY, T.BinaryType(), metadata={"comment": note})])
        create_plain_table(path, schema, properties, comment=view.comment)
        return
    columns = [f"{quoted(o.name)} {plan.field_named(o.column).data_type}" for o in plan.output]
    columns.append(f"{quoted(VIEW_KEY)} BINARY COMMENT '{note}'")
    if any(set(o.name) & _REFUSED_BY_DELTA for o in plan.output):
        properties["delta.columnMapping.mode"] = "name"
    comment = f" COMMENT {text_literal(view.comment)}" if view.comment else ""
    session.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({', '.join(columns)}) USING delta{comment} "
        f"TBLPROPERTIES ({property_list(properties)})"
    )


def written_by_driver(view: ViewEntry) -> bool:
    """Whether the view's columns have names and types that can be written without Spark."""
    plan = plan_of(view)
    plain = all(is_plain(parse_type(plan.field_named(o.column).data_type)) for o in plan.output)
    return plain and not any(set(o.name) & _REFUSED_BY_DELTA for o in plan.output)


def published(table: OpenedTable, view: ViewEntry, epoch: int) -> Published | None:
    """What an earlier try of this epoch has published already."""
    done = table.transaction_version(app_id(view))
    if done is None or done < epoch_txn_version(epoch):
        return None
    return Published(table.latest().version(), 0, 0)


def publish(
    session: SparkSession,
    path: str,
    store: StateStore,
    view: ViewEntry,
    epoch: int,
    commit: StateCommit,
    *,
    small: bool = False,
) -> Published:
    """Apply the change set of an epoch to the published table.

    Parameters
    ----------
    session : used for this one commit; its transaction settings are set and unset here.
    path : the published table.
    store, commit : the state that holds the change set, and the commit that wrote it.
    small : the change set fits into the driver's memory many times over.
    """
    table = OpenedTable(path)
    done = published(table, view, epoch)
    if done is not None:
        return done
    first = view.last_epoch is None
    new_generation = first and view.generation > 0
    if first:
        create_view_table(session, path, view)
    failpoints.reached("before_publish")
    only_inserts = first or plan_of(view).append_only
    if small and not new_generation and written_by_driver(view) and (only_inserts or table.total_bytes() <= _DRIVER_BYTES):
        rows = _computed_changes(store, view, commit.stored)
        if rows is None:
            rows = collected(_changes(store, view, epoch, commit.version))
        if rows is not None:
            apply = append_changes if only_inserts else merge_changes
            return apply(table, rows, app_id(view), epoch_txn_version(epoch))
    changes = _changes(store, view, epoch, commit.version)
    mode = None if not only_inserts else "overwrite" if new_generation else "append"
    return _publish_by_spark(session, table, changes, view, epoch, mode)


def _publish_by_spark(
    session: SparkSession, table: OpenedTable, changes: DataFrame, view: ViewEntry, epoch: int, mode: str | None
) -> Published:
    """Apply changes of any size: nothing but insertions by appending them, others (``mode`` None) by MERGE."""
    path, txn_version = table.path, epoch_txn_version(epoch)
    version_before = table.latest().version()
    try:
        if mode is None:
            _merge(session, path, changes, view, txn_version)
        else:
            writer = changes.drop(OP).write.format("delta").mode(mode)
            if mode == "overwrite":
                # A new generation replaces the rows of the old one, and may have other columns.
                writer = writer.option("overwriteSchema", "true")
            writer.option("txnAppId", app_id(view)).option("txnVersion", txn_version).save(path)
    except PySparkException as error:
        if "ConcurrentTransaction" in str(error):
            raise EpochError(f"view {view.name}: another run published epoch {epoch} at the same time; run again") from error
        raise
    version = table.latest().version()
    if table.transaction_version(app_id(view)) != txn_version:
        raise EpochError(f"view {view.name}: epoch {epoch} was not recorded in the published table; run again")
    inserted, deleted = rows_changed(DeltaLog(path).commit(version)) if version > version_before else (0, 0)
    return Published(version, inserted, deleted)


def _merge(session: SparkSession, path: str, changes: DataFrame, view: ViewEntry, txn_version: int) -> None:
    changes.createOrReplaceTempView("_relstate_changes")
    names = [*(quoted(o.name) for o in plan_of(view).output), quoted(VIEW_KEY)]
    sets = ", ".join(f"v.{n} = c.{n}" for n in names)
    values = ", ".join(f"c.{n}" for n in names)
    with transaction(session, app_id(view), txn_version):
        session.sql(
            f"MERGE INTO delta.`{path}` v USING _relstate_changes c ON v.{quoted(VIEW_KEY)} = c.{quoted(VIEW_KEY)} "
            f"WHEN MATCHED AND c.{OP} < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND c.{OP} > 0 THEN INSERT ({', '.join(names)}) VALUES ({values})"
        )
    session.catalog.dropTempView("_relstate_changes")


def _computed_changes(store: StateStore, view: ViewEntry, stored: pa.Table | None) -> pa.Table | None:
    """As :func:`_changes`, out of rows that were computed just now; ``None`` where only the state has them all.

    A view without a stream key needs to know how many copies of a row it held before.
    """
    plan = plan_of(view)
    slots = {o.name: store.slots_of(view.tables[-1].table_id).of(o.column).plain_slot for o in plan.output}
    if stored is None or plan.stream_key is None or None in slots.values():
        return None
    own = stored.filter(pc.equal(stored[TABLE_ID], view.tables[-1].table_id))
    there = own.filter(pc.greater(own[WEIGHT_COLUMN], 0))
    gone = own.filter(pc.less(own[WEIGHT_COLUMN], 0))
    gone = gone.filter(pc.invert(pc.is_in(gone[KEY], value_set=there[KEY].combine_chunks())))
    rows = pa.concat_tables([there, gone])
    names = [*slots, VIEW_KEY, OP]
    return pa.table([*(rows[slot] for slot in slots.values()), rows[KEY], rows[WEIGHT_COLUMN]], names=names)


def _changes(store: StateStore, view: ViewEntry, epoch: int, state_version: int) -> DataFrame:
    """One row a key: the view's columns, ``_key``, and ``OP`` (+1 insert or update, −1 delete)."""
    plan = plan_of(view)
    table = store.storage_table(view.tables[-1].table_id, version=state_version, epoch=epoch)
    names = list(plan.column_names)
    columns = [table.slots.of(name).read() for name in names]
    stored = table.stored().select(
        *columns,
        F.col(KEY).alias(VIEW_KEY),
        F.col(EPOCH_COLUMN).alias(EPOCH),
        F.col(WEIGHT_COLUMN).alias(STATE_WEIGHT),
    )
    now = stored.where(F.col(EPOCH) == epoch)
    row = F.struct(*columns_of(names))
    output = [F.col("_row").getField(o.column).alias(o.name) for o in plan.output]
    if plan.stream_key is not None:
        newest = now.groupBy(VIEW_KEY).agg(F.max(STATE_WEIGHT).alias(OP), F.max_by(row, STATE_WEIGHT).alias("_row"))
        return newest.select(*output, VIEW_KEY, OP)
    changed = now.groupBy(VIEW_KEY).agg(F.sum(STATE_WEIGHT).alias("_delta"), F.first(row).alias("_row"))
    before = stored.where(F.col(EPOCH) < epoch).join(F.broadcast(changed.select(VIEW_KEY)), VIEW_KEY, "left_semi")
    held = before.groupBy(VIEW_KEY).agg(F.sum(STATE_WEIGHT).alias("_held"))
    zero = F.lit(0).cast("bigint")
    counted = changed.where(F.col("_delta") != 0).join(held, VIEW_KEY, "left").fillna(0, ["_held"])
    after = F.col("_held") + F.col("_delta")
    problem = F.lit(f"view {view.name}, epoch {epoch}: a row is retracted more often than the view holds it")
    low = F.when(after < 0, F.raise_error(problem).cast("bigint")).otherwise(F.least(F.col("_held"), after))
    copies = F.sequence(low + 1, F.greatest(F.col("_held"), after))
    numbered = counted.select("_row", VIEW_KEY, "_delta", F.explode(copies).alias("_copy"))
    copy_key = F.concat(F.col(VIEW_KEY), F.unhex(F.lpad(F.hex("_copy"), 16, "0")))
    op = F.when(F.col("_delta") > zero, F.lit(1)).otherwise(F.lit(-1))
    return numbered.select(*output, copy_key.alias(VIEW_KEY), op.alias(OP))
