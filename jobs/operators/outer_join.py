"""Outer, semi, anti and existence joins, by counts of associations.

The inner part, and rows whose count goes 0 ↔ n.

A *record* is a row of a side that keeps association counts. For a record with multiplicity w and n matches on the other
side, the query emits beside its pairs

    left / right / full outer :  w × (record, NULLs)   where n = 0
    semi                      :  w × record            where n > 0
    anti                      :  w × record            where n = 0
    existence                 :  w × (record, n > 0)

so the change is what the new (w, n) emit less what the old ones did. Only two kinds of records can change:

* records of the change set, whose matches are counted in the current other side, and
* stored records with the key of a row that changed on the other side, whose stored count moves by those matches.

State: the counted sides, and the other one unless it is looked up in place; a record of a counted side carries
``_num_associations``. A changed count retracts the record under the old count and inserts it under the new one. Cost: as
an inner join, plus the fan-out of the changed keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.in_place import match
from relstate_dagster.jobs.operators.pairs import LEFT_WEIGHT, RIGHT_WEIGHT, Side, sides_of, weighted
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.consolidated import is_consolidated
from relstate_dagster.jobs.plan.nodes import Join
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.join_record_state import EMITTED_ALONE, NUM_ASSOCIATIONS, Counted, emission_change
from relstate_dagster.state_lib.merge import sum_equal
from relstate_dagster.state_lib.row_sums import Typed, sum_rows
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.table_schema import StateColumn

_LEFT_IS_NEW = "_left_is_new"
_RIGHT_IS_NEW = "_right_is_new"


@dataclass(slots=True)
class _Side:
    """One side in an epoch: change set, state, and touched stored records."""

    side: Side
    is_new: str
    counted: bool
    delta: DataFrame | None
    touched: DataFrame | None = None

    @property
    def columns(self) -> list[str]:
        return list(self.side.node.column_names)

    @property
    def weight(self) -> str:
        return self.side.weight


def change(ctx: EpochContext, node: Join, left: DataFrame | None, right: DataFrame | None) -> OperatorResult:
    """Change of the inner part, and of rows that depend on association counts."""
    if left is None and right is None:
        return OperatorResult(None)
    left_side, right_side = sides_of(ctx, node)
    sides = (
        _Side(left_side, _LEFT_IS_NEW, node.left_has_associations, left),
        _Side(right_side, _RIGHT_IS_NEW, node.right_has_associations, right),
    )
    ctx.in_parallel(*(partial(_receive, ctx, side) for side in sides))
    if not ctx.is_backfill:
        ctx.in_parallel(partial(_read_touched, ctx, *sides), partial(_read_touched, ctx, *reversed(sides)))
    # A backfill counts without them.
    pairs = _pairs(ctx, node, *sides) if node.keeps_right_columns or not ctx.is_backfill else None
    outputs = []
    if node.keeps_right_columns and pairs is not None:
        product = (F.col(LEFT_WEIGHT) * F.col(RIGHT_WEIGHT)).alias(WEIGHT)
        outputs.append(pairs.select(*columns_of(node.column_names), product))
    for side, other in (sides, reversed(sides)):
        if side.counted:
            records = _counted(ctx, node, side, other) if ctx.is_backfill else _recount(ctx, side, pairs)
            if records is not None:
                side.side.state.write(_stored(records, side))
                outputs += _emitted(node, records, side)
        elif side.delta is not None and side.side.table is not None:
            side.side.table.write(side.delta)
    return OperatorResult(reduce(DataFrame.union, outputs) if outputs else None)


def _receive(ctx: EpochContext, side: _Side) -> None:
    """Consolidate and share a side's change set; one that turns out empty is none."""
    if side.delta is not None:
        node = side.side.node
        # In a backfill rows with a key are different ones, and rows that are not kept are summed where they are met.
        is_kept = side.counted or side.side.table is not None
        is_summed = is_consolidated(node) or (ctx.is_backfill and (node.stream_key is not None or not is_kept))
        shared = side.side.shared(ctx, side.delta, summed=not is_summed)
        side.delta = None if ctx.frames.is_empty(shared) else shared


def _read_touched(ctx: EpochContext, side: _Side, other: _Side) -> None:
    """Stored records of a counted side that share a changed key, merged.

    Where rows may have expired, with its own change set as well: how often a record was matched by what is gone, only its
    stored count knows.
    """
    own = side.delta if ctx.may_have_expired else None
    if not side.counted or (other.delta is None and own is None):
        return
    names = [*side.columns, NUM_ASSOCIATIONS]
    wanted = side.side.wanted
    if wanted:
        matched, on = other.delta, [(w.ours, w.theirs) for w in wanted]
        if own is not None:
            keys = [own.select(*columns_of([w.ours for w in wanted]))]
            keys += [] if matched is None else [matched.select(*columns_of([w.theirs for w in wanted]))]
            matched, on = ctx.frames.share(reduce(DataFrame.union, keys)), [(w.ours, w.ours) for w in wanted]
        assert matched is not None
        null_safe = [w.null_safe for w in wanted]
        runs = side.side.state.storage.lookup(
            matched.select(*columns_of([theirs for _, theirs in on])).distinct(),
            on,
            null_safe=null_safe,
            columns=names,
            hint=ctx.frames.hint(matched),
            lookup_keys=ctx.frames.lookup_keys(matched, [pair for pair, safe in zip(on, null_safe, strict=True) if not safe]),
        )
    else:
        runs = side.side.state.storage.runs(names)
    summed = sum_equal(runs, side.side.state.desc.schema, names, {side.weight: F.sum(STATE_WEIGHT)})
    # An epoch before retracted a record that the state did not have: it was not looked up then.
    times, problem = F.col(side.weight), _contradiction(ctx, side)
    checked = F.when(times < 0, F.raise_error(problem).cast("bigint")).otherwise(times)
    side.touched = ctx.frames.share(summed.select(*columns_of(names), checked.alias(side.weight)).where(times != 0))


def _pairs(ctx: EpochContext, node: Join, left: _Side, right: _Side) -> DataFrame | None:
    """All pairs with a changed row, with a flag for each side's row.

    A side read in place already contains its inserted rows, so the other side's pairs with it include those with its
    change set.
    """
    found = []
    for side, other in ((left, right), (right, left)):
        if side.delta is None or ctx.is_backfill or (other.touched is not None and ctx.frames.is_empty(other.touched)):
            continue
        # The other side's stored rows: the records just looked up where it is counted, else what it has in state or place.
        stored = other.touched if other.touched is not None else other.side.matching_rows(ctx, side.delta)
        stored = stored.select(*columns_of(other.columns), other.weight)
        flags = [F.lit(True).alias(side.is_new), F.lit(False).alias(other.is_new)]
        found.append((match(node, stored, ctx.frames.broadcastable(side.delta, weighted(side.delta, side.weight))), flags))
    apart = ctx.is_backfill or not (node.left_in_place or node.right_in_place)
    if left.delta is not None and right.delta is not None and apart:
        flags = [F.lit(True).alias(_LEFT_IS_NEW), F.lit(True).alias(_RIGHT_IS_NEW)]
        found.append((match(node, weighted(left.delta, LEFT_WEIGHT), weighted(right.delta, RIGHT_WEIGHT)), flags))
    if not found:
        return None
    columns = [*columns_of(left.columns), *columns_of(right.columns), LEFT_WEIGHT, RIGHT_WEIGHT]
    all_pairs = reduce(DataFrame.unionByName, (pairs.select(*columns, *flags) for pairs, flags in found))
    readers = [node.keeps_right_columns, left.counted, right.counted]
    return all_pairs if ctx.is_backfill or sum(readers) < 2 else ctx.frames.share(all_pairs)


def _recount(ctx: EpochContext, side: _Side, pairs: DataFrame | None) -> DataFrame | None:
    """Old and new multiplicity and association count of every record that may have changed.

    Columns: the record, ``_w_old``, ``_w_new``, ``_n_old``, ``_n_new``.
    """
    other_weight = RIGHT_WEIGHT if side.weight == LEFT_WEIGHT else LEFT_WEIGHT
    columns = columns_of(side.columns)
    zero = F.lit(0).cast("bigint")
    stack = []
    if side.delta is not None:
        stack.append(side.delta.select(*columns, *_measures(delta=F.col(WEIGHT))))
    if side.touched is not None and not ctx.frames.is_empty(side.touched):
        old = _measures(old=F.col(side.weight), count=F.col(NUM_ASSOCIATIONS))
        stack.append(side.touched.select(*columns, *old))
    if not stack:
        return None
    if pairs is not None:
        is_new = F.col(side.is_new)
        found = F.when(is_new, F.col(other_weight)).otherwise(zero)
        moved = F.when(is_new, zero).otherwise(F.col(other_weight))
        stack.append(pairs.select(*columns, *_measures(found=found, moved=moved)))
    summed = sum_rows(reduce(DataFrame.union, stack), side.side.node.schema, {name: F.sum(name) for name in _MEASURES})
    was_stored = F.col("_old") > 0
    n_new = F.when(was_stored, F.col("_count") + F.col("_moved")).otherwise(F.col("_found"))
    # A record of the change set that was not looked up was not touched from the other side: its count did not move.
    n_old = F.when(was_stored, F.col("_count")).otherwise(F.col("_found"))
    w_new = F.col("_old") + F.col("_delta")
    problem = _contradiction(ctx, side)
    broken = (was_stored & (w_new < 0)) | (n_new < 0)
    checked = summed.select(
        *columns,
        F.col("_old").alias("_w_old"),
        F.when(broken, F.raise_error(problem).cast("bigint")).otherwise(w_new).alias("_w_new"),
        n_old.alias("_n_old"),
        n_new.alias("_n_new"),
    )
    return ctx.frames.share(checked.where((F.col("_w_old") != F.col("_w_new")) | (F.col("_n_old") != F.col("_n_new"))))


def _contradiction(ctx: EpochContext, side: _Side) -> Column:
    """Error message for a record with a negative count, with the record's key."""
    desc = side.side.state.desc
    key = [part.column for part in desc.schema.storage_key if part.column in side.columns]
    values = [F.coalesce(F.col(quoted(name)).cast("string"), F.lit("NULL")) for name in key]
    shown = F.concat_ws(", ", *(F.concat(F.lit(f"{name} = "), value) for name, value in zip(key, values, strict=True)))
    return F.concat(
        F.lit(f"epoch {ctx.epoch}: a record of the {desc.schema.label} side of a join (table_id {desc.table_id}; "),
        shown,
        F.lit(
            ") is retracted more often than it is there, or matched a negative number of times; the state and its inputs "
            "contradict each other, rebuild with --full-refresh"
        ),
    )


def _counted(ctx: EpochContext, node: Join, side: _Side, other: _Side) -> DataFrame | None:
    """As :func:`_recount`, without stored records.

    Every record is new, with all its matches.

    Without a residual condition all records of a key have the same matches, which are counted before they are met.
    """
    if side.delta is None:
        return None
    records = weighted(side.delta, side.weight)
    columns = columns_of(side.columns)
    found: Column = F.lit(0).cast("bigint")
    if other.delta is not None:
        matches = weighted(other.delta, other.weight)
        alike_by_key = node.residual is None and bool(node.keys)
        if alike_by_key:
            key = dict.fromkeys(columns_of([w.ours for w in other.side.wanted]))
            matches = matches.groupBy(*key).agg(F.sum(other.weight).alias(other.weight))
        records = match(node, records, matches, "left")
        found = F.coalesce(F.col(other.weight), found)
        if not alike_by_key:
            record: list[Typed] = [*side.side.node.schema, StateColumn(side.weight, "bigint")]
            records = sum_rows(records, record, {other.weight: F.sum(found)})
            found = F.col(other.weight)
    zero = F.lit(0).cast("bigint")
    weight = F.col(side.weight)
    return ctx.frames.share(
        records.select(*columns, zero.alias("_w_old"), weight.alias("_w_new"), found.alias("_n_old"), found.alias("_n_new"))
    )


_MEASURES = ("_delta", "_old", "_count", "_found", "_moved")


def _measures(**given: Column) -> list[Column]:
    return [given.get(name[1:], F.lit(0)).cast("bigint").alias(name) for name in _MEASURES]


def _stored(records: DataFrame, side: _Side) -> DataFrame:
    """State rows: a record retracted under its old count, inserted under the new."""
    moved = F.col("_n_old") != F.col("_n_new")
    old = F.struct(F.col("_n_old").alias("n"), F.when(moved, -F.col("_w_old")).otherwise(F.lit(0).cast("bigint")).alias("w"))
    new = F.struct(
        F.col("_n_new").alias("n"),
        F.when(moved, F.col("_w_new")).otherwise(F.col("_w_new") - F.col("_w_old")).alias("w"),
    )
    columns = columns_of(side.columns)
    rows = records.select(*columns, F.explode(F.array(old, new)).alias("_row")).where(F.col("_row.w") != 0)
    return rows.select(*columns, F.col("_row.n").alias(NUM_ASSOCIATIONS), F.col("_row.w").alias(WEIGHT))


def _emitted(node: Join, records: DataFrame, side: _Side) -> list[DataFrame]:
    """The change of the rows that depend on whether a record is associated at all."""
    outputs = [F.col(name) for name in columns_of(side.columns)]
    if node.keeps_right_columns:
        own = set(side.columns)
        outputs = [F.col(quoted(f.name)) if f.name in own else F.lit(None).cast(f.data_type).alias(f.name) for f in node.schema]
    old, new = (Counted(F.col(f"_w_{name}"), F.col(f"_n_{name}")) for name in ("old", "new"))
    parts = []
    for associated in EMITTED_ALONE[node.join_type]:
        flag = [F.lit(associated).alias(node.schema[-1].name)] if node.join_type == "existence" else []
        weight = emission_change(old, new, associated=associated, where=_where)
        parts.append(records.select(*outputs, *flag, weight.alias(WEIGHT)).where(F.col(WEIGHT) != 0))
    return parts


def _where(condition: Column, weight: Column) -> Column:
    return F.when(condition, weight).otherwise(F.lit(0).cast("bigint"))
