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
from relstate_dagster.jobs.operators.pairs import LEFT_WEIGHT, RIGHT_WEIGHT, Side, sides_of, weighted
from relstate_dagster.jobs.operators.row_rules import joined
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.consolidated import is_consolidated
from relstate_dagster.jobs.plan.nodes import Join
from relstate_dagster.state_lib.columns import group_by
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.join_record_state import EMITTED_ALONE, NUM_ASSOCIATIONS, Counted, emission_change
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.merge import sum_equal
from relstate_dagster.state_lib.row_sums import Typed, sum_rows
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.table_schema import StateColumn

_LEFT_IS_NEW = "_left_is_new"
_RIGHT_IS_NEW = "_right_is_new"


@dataclass(slots=True)
class _Side:
    """One side in an epoch: change set, state, and touched stored records."""

    side: Side
    is_new: str
    counted: bool
    delta: RowSet | None
    touched: RowSet | None = None

    @property
    def columns(self) -> list[str]:
        return list(self.side.node.column_names)

    @property
    def weight(self) -> str:
        return self.side.weight


def change(ctx: EpochContext, node: Join, left: RowSet | None, right: RowSet | None) -> OperatorResult:
    """Change of the inner part, and of rows that depend on association counts."""
    if left is None and right is None:
        return OperatorResult(None)
    left_side, right_side = sides_of(ctx, node)
    sides = (
        _Side(left_side, _LEFT_IS_NEW, node.left_has_associations, left),
        _Side(right_side, _RIGHT_IS_NEW, node.right_has_associations, right),
    )
    is_new = ctx.state_is_new(node)
    ctx.in_parallel(*(partial(_receive, ctx, side, is_new=is_new) for side in sides))
    if not is_new:
        ctx.in_parallel(partial(_read_touched, ctx, *sides), partial(_read_touched, ctx, *reversed(sides)))
    # Where all records are new they are counted without them.
    pairs = _pairs(ctx, node, *sides) if node.keeps_right_columns or not is_new else None
    outputs = []
    if node.keeps_right_columns and pairs is not None:
        outputs.append(select(pairs, [*columns_of(node.column_names), f"{LEFT_WEIGHT} * {RIGHT_WEIGHT} AS {WEIGHT}"]))
    for side, other in (sides, reversed(sides)):
        if side.counted:
            records = _counted(ctx, node, side, other) if is_new else _recount(ctx, side, pairs)
            if records is not None:
                side.side.state.write(_stored(records.frame, side))
                outputs += _emitted(node, records.frame, side)
        elif side.delta is not None and side.side.table is not None:
            side.side.table.write(side.delta.frame)
    return OperatorResult(ctx.row_sets.of(reduce(DataFrame.union, outputs)) if outputs else None)


def _receive(ctx: EpochContext, side: _Side, *, is_new: bool) -> None:
    """Consolidate and share a side's change set; one that turns out empty is none."""
    if side.delta is not None:
        node = side.side.node
        # Of all rows those with a key are different ones, and rows that are not kept are summed where they are met.
        is_kept = side.counted or side.side.table is not None
        is_summed = is_consolidated(node) or (is_new and (node.stream_key is not None or not is_kept))
        shared = side.side.shared(ctx, side.delta, summed=not is_summed)
        side.delta = None if shared.is_empty else shared


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
            keys = [select(own.frame, columns_of([w.ours for w in wanted]))]
            keys += [] if matched is None else [select(matched.frame, columns_of([w.theirs for w in wanted]))]
            matched, on = ctx.row_sets.shared(reduce(DataFrame.union, keys)), [(w.ours, w.ours) for w in wanted]
        assert matched is not None
        null_safe = [w.null_safe for w in wanted]
        runs = side.side.state.storage.lookup(
            select(matched.frame, columns_of([theirs for _, theirs in on])).distinct(),
            on,
            null_safe=null_safe,
            columns=names,
            hint=matched.hint,
            lookup_keys=matched.lookup_keys([pair for pair, safe in zip(on, null_safe, strict=True) if not safe]),
        )
    else:
        runs = side.side.state.storage.runs(names)
    summed = sum_equal(runs, side.side.state.desc.schema, names, {side.weight: F.sum(STATE_WEIGHT)})
    # An epoch before retracted a record that the state did not have: it was not looked up then.
    checked = f"{_unless(f'{side.weight} < 0', side.weight, _contradiction(ctx, side))} AS {side.weight}"
    side.touched = ctx.row_sets.shared(select(summed, [*columns_of(names), checked]).where(f"{side.weight} != 0"))


def _pairs(ctx: EpochContext, node: Join, left: _Side, right: _Side) -> DataFrame | None:
    """All pairs with a changed row, with a flag for each side's row.

    A side read in place already contains its inserted rows, so the other side's pairs with it include those with its
    change set.
    """
    found, is_new = [], ctx.state_is_new(node)
    for side, other in ((left, right), (right, left)):
        if side.delta is None or is_new or (other.touched is not None and other.touched.is_empty):
            continue
        # The other side's stored rows: the records just looked up where it is counted, else what it has in state or place.
        stored = other.touched.frame if other.touched is not None else other.side.matching_rows(ctx, side.delta)
        stored = select(stored, [*columns_of(other.columns), other.weight])
        flags = [f"true AS {side.is_new}", f"false AS {other.is_new}"]
        found.append((joined(node, stored, side.delta.broadcastable(weighted(side.delta.frame, side.weight))), flags))
    apart = is_new or not (node.left_in_place or node.right_in_place)
    if left.delta is not None and right.delta is not None and apart:
        flags = [f"true AS {_LEFT_IS_NEW}", f"true AS {_RIGHT_IS_NEW}"]
        found.append((joined(node, weighted(left.delta.frame, LEFT_WEIGHT), weighted(right.delta.frame, RIGHT_WEIGHT)), flags))
    if not found:
        return None
    columns = [*columns_of(left.columns), *columns_of(right.columns), LEFT_WEIGHT, RIGHT_WEIGHT]
    all_pairs = reduce(DataFrame.unionByName, (select(pairs, [*columns, *flags]) for pairs, flags in found))
    readers = [node.keeps_right_columns, left.counted, right.counted]
    return all_pairs if is_new or sum(readers) < 2 else ctx.row_sets.shared(all_pairs).frame


def _recount(ctx: EpochContext, side: _Side, pairs: DataFrame | None) -> RowSet | None:
    """Old and new multiplicity and association count of every record that may have changed.

    Columns: the record, ``_w_old``, ``_w_new``, ``_n_old``, ``_n_new``.
    """
    other_weight = RIGHT_WEIGHT if side.weight == LEFT_WEIGHT else LEFT_WEIGHT
    columns = columns_of(side.columns)
    stack = []
    if side.delta is not None:
        stack.append(select(side.delta.frame, [*columns, *_measures(delta=WEIGHT)]))
    if side.touched is not None and not side.touched.is_empty:
        stack.append(select(side.touched.frame, [*columns, *_measures(old=side.weight, count=NUM_ASSOCIATIONS)]))
    if not stack:
        return None
    if pairs is not None:
        found = f"IF({side.is_new}, {other_weight}, 0)"
        moved = f"IF({side.is_new}, 0, {other_weight})"
        stack.append(select(pairs, [*columns, *_measures(found=found, moved=moved)]))
    summed = sum_rows(reduce(DataFrame.union, stack), side.side.node.schema, {name: F.sum(name) for name in _MEASURES})
    n_new, w_new = "IF(_old > 0, _count + _moved, _found)", "_old + _delta"
    broken = f"(_old > 0 AND {w_new} < 0) OR {n_new} < 0"
    # A record of the change set that was not looked up was not touched from the other side: its count did not move.
    n_old = "IF(_old > 0, _count, _found)"
    checked = _unless(broken, w_new, _contradiction(ctx, side))
    counts = ["_old AS _w_old", f"{checked} AS _w_new", f"{n_old} AS _n_old", f"{n_new} AS _n_new"]
    return ctx.row_sets.shared(select(summed, [*columns, *counts]).where("_w_old != _w_new OR _n_old != _n_new"))


def _unless(broken: str, value: str, problem: str) -> str:
    """SQL for a whole number that raises an error if a condition holds."""
    return f"CASE WHEN {broken} THEN CAST(raise_error({problem}) AS BIGINT) ELSE {value} END"


def _contradiction(ctx: EpochContext, side: _Side) -> str:
    """SQL for the message about a record with a negative count, with the record's key."""
    desc = side.side.state.desc
    key = [part.column for part in desc.schema.storage_key if part.column in side.columns]
    values = [f"concat({text_literal(f'{name} = ')}, coalesce(CAST({quoted(name)} AS STRING), 'NULL'))" for name in key]
    shown = f"concat_ws({', '.join([text_literal(', '), *values])})"
    before = f"epoch {ctx.epoch}: a record of the {desc.schema.label} side of a join (table_id {desc.table_id}; "
    after = (
        ") is retracted more often than it is there, or matched a negative number of times; the state and its inputs "
        "contradict each other, rebuild with --full-refresh"
    )
    return f"concat({text_literal(before)}, {shown}, {text_literal(after)})"


def _counted(ctx: EpochContext, node: Join, side: _Side, other: _Side) -> RowSet | None:
    """As :func:`_recount`, without stored records.

    Every record is new, with all its matches.

    Without a residual condition all records of a key have the same matches, which are counted before they are met.
    """
    if side.delta is None:
        return None
    records = weighted(side.delta.frame, side.weight)
    columns = columns_of(side.columns)
    found = "0L"
    if other.delta is not None:
        matches = weighted(other.delta.frame, other.weight)
        alike_by_key = node.residual is None and bool(node.keys)
        if alike_by_key:
            key = dict.fromkeys(columns_of([w.ours for w in other.side.wanted]))
            matches = group_by(matches, list(key)).agg(F.sum(other.weight).alias(other.weight))
        records = joined(node, records, matches, "left")
        found = f"coalesce({other.weight}, 0L)"
        if not alike_by_key:
            record: list[Typed] = [*side.side.node.schema, StateColumn(side.weight, "bigint")]
            records = sum_rows(records, record, {other.weight: F.sum(F.expr(found))})
            found = other.weight
    counts = ["0L AS _w_old", f"{side.weight} AS _w_new", f"{found} AS _n_old", f"{found} AS _n_new"]
    return ctx.row_sets.shared(select(records, [*columns, *counts]))


_MEASURES = ("_delta", "_old", "_count", "_found", "_moved")


def _measures(**given: str) -> list[str]:
    return [f"CAST({given.get(name[1:], '0')} AS BIGINT) AS {name}" for name in _MEASURES]


def _stored(records: DataFrame, side: _Side) -> DataFrame:
    """State rows: a record retracted under its old count, inserted under the new."""
    old = "struct(_n_old AS n, IF(_n_old != _n_new, -_w_old, 0L) AS w)"
    new = "struct(_n_new AS n, IF(_n_old != _n_new, _w_new, _w_new - _w_old) AS w)"
    columns = columns_of(side.columns)
    rows = select(records, [*columns, f"explode(array({old}, {new})) AS _row"]).where("_row.w != 0")
    return select(rows, [*columns, f"_row.n AS {NUM_ASSOCIATIONS}", f"_row.w AS {WEIGHT}"])


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
        parts.append(records.select(*outputs, *flag, weight.alias(WEIGHT)).where(f"{WEIGHT} != 0"))
    return parts


def _where(condition: Column, weight: Column) -> Column:
    return F.when(condition, weight).otherwise(F.lit(0).cast("bigint"))
