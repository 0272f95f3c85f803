"""The change set of a view's epoch, one row a key, out of its state."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.targets.protocol import IS_THERE, OP
from relstate_dagster.state_lib.constants import EPOCH, EPOCH_COLUMN, KEY, STATE_WEIGHT, TABLE_ID, VIEW_KEY, WEIGHT_COLUMN
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.row_sums import zero_signs
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_store import StateStore


def computed_changes(store: StateStore, view: ViewEntry, stored: pa.Table | None) -> pa.Table | None:
    """As :func:`stored_changes`, from rows computed just now.

    ``None`` if only the state has them all.

    A view without a stream key needs to know how many copies of a row it held before.
    """
    plan = view.plan
    slots = {o.name: store.slots_of(view.tables[-1].table_id).of(o.column).plain_slot for o in plan.output}
    if stored is None or plan.stream_key is None or None in slots.values():
        return None
    own = stored.filter(pc.equal(stored[TABLE_ID], view.tables[-1].table_id))
    there = own.filter(pc.greater(own[WEIGHT_COLUMN], 0))
    left = own.filter(pc.less(own[WEIGHT_COLUMN], 0))
    gone = left.filter(pc.invert(pc.is_in(left[KEY], value_set=there[KEY].combine_chunks())))
    rows = pa.concat_tables([there, gone])
    is_there = pc.is_in(rows[KEY], value_set=left[KEY].combine_chunks())
    names = [*slots, VIEW_KEY, OP, IS_THERE]
    return pa.table([*(rows[slot] for slot in slots.values()), rows[KEY], rows[WEIGHT_COLUMN], is_there], names=names)


def stored_changes(store: StateStore, view: ViewEntry, epoch: int, state_version: int) -> DataFrame:
    """One row for each key of the change set.

    The view's columns, ``_key``, ``OP`` (+1 insert or update, −1 delete) and ``IS_THERE``.
    """
    plan = view.plan
    table = store.storage_table(view.tables[-1].table_id, version=state_version, epoch=epoch)
    names = list(plan.column_names)
    columns = [table.slots.of(name).read() for name in names]
    facts = [f"{KEY} AS {VIEW_KEY}", f"{EPOCH_COLUMN} AS {EPOCH}", f"{WEIGHT_COLUMN} AS {STATE_WEIGHT}"]
    stored = select(table.stored(), [*columns, *facts])
    zeros = None if plan.stream_key is not None else zero_signs([plan.field_named(name) for name in names])
    if zeros is not None:
        # The order of keys has one zero.
        stored = stored.withColumn(VIEW_KEY, F.expr(f"concat({VIEW_KEY}, CAST({zeros} AS BINARY))"))
    # Of a view that is new everything is, be it of several slices.
    is_first = view.last_epoch is None
    now = stored if is_first else stored.where(f"{EPOCH} = {epoch}L")
    row = F.struct(*columns_of(names))
    if is_first and plan.stream_key is not None and view.built_until is None:
        # A first change set has each key once.
        own = [f"{quoted(o.column)} AS {quoted(o.name)}" for o in plan.output]
        return select(now, [*own, VIEW_KEY, f"{STATE_WEIGHT} AS {OP}", f"false AS {IS_THERE}"])
    output = [F.col("_row").getField(o.column).alias(o.name) for o in plan.output]
    if plan.stream_key is not None and view.built_until is None:
        signs = F.max(STATE_WEIGHT).alias(OP), (F.min(STATE_WEIGHT) < 0).alias(IS_THERE)
        newest = now.groupBy(VIEW_KEY).agg(*signs, F.max_by(row, STATE_WEIGHT).alias("_row"))
        return newest.select(*output, VIEW_KEY, OP, IS_THERE)
    if plan.stream_key is not None:
        newest_row = F.max_by(row, F.struct(EPOCH, STATE_WEIGHT)).alias("_row")
        summed = now.groupBy(VIEW_KEY).agg(F.sum(STATE_WEIGHT).alias(OP), newest_row)
        return summed.where(f"{OP} > 0").select(*output, VIEW_KEY, OP, F.lit(False).alias(IS_THERE))
    changed = now.groupBy(VIEW_KEY).agg(F.sum(STATE_WEIGHT).alias("_delta"), F.first(row).alias("_row"))
    changed = changed.where("_delta != 0")
    if is_first:
        counted = changed.withColumn("_held", F.lit(0).cast("bigint"))
    else:
        before = stored.where(f"{EPOCH} < {epoch}L").join(F.broadcast(changed.select(VIEW_KEY)), VIEW_KEY, "left_semi")
        held = before.groupBy(VIEW_KEY).agg(F.sum(STATE_WEIGHT).alias("_held"))
        counted = changed.join(held, VIEW_KEY, "left").fillna(0, ["_held"])
    zero = F.lit(0).cast("bigint")
    after = F.col("_held") + F.col("_delta")
    problem = F.lit(f"view {view.name}, epoch {epoch}: a row is retracted more often than the view holds it")
    low = F.when(after < 0, F.raise_error(problem).cast("bigint")).otherwise(F.least(F.col("_held"), after))
    copies = F.sequence(low + 1, F.greatest(F.col("_held"), after))
    numbered = counted.select("_row", VIEW_KEY, "_delta", F.explode(copies).alias("_copy"))
    copy_key = F.concat(F.col(VIEW_KEY), F.unhex(F.lpad(F.hex("_copy"), 16, "0")))
    op = F.when(F.col("_delta") > zero, F.lit(1)).otherwise(F.lit(-1))
    return numbered.select(*output, copy_key.alias(VIEW_KEY), op.alias(OP), (op < 0).alias(IS_THERE))
