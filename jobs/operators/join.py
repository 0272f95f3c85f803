"""Inner join: Δ(L ⋈ R) from two change sets and both sides' rows.

With X₋ a side as of the last epoch and X₊ as of this one,

    ΔL ⋈ R₋ + L₋ ⋈ ΔR + ΔL ⋈ ΔR     both sides in state tables, which hold X₋
    ΔL ⋈ R₊ + L₋ ⋈ ΔR               right side in place, where X₊ is read; likewise the left side
    ΔL ⋈ R₊ + L₊ ⋈ ΔR − ΔL ⋈ ΔR     both sides in place
    ΔL ⋈ R₊                         where, besides, L₋ ⋈ ΔR is empty by the statistics of files; likewise L₊ ⋈ ΔR

State: each side that is not looked up in place (:mod:`.jobs.planner.in_place`), under its join key, in one of the three
forms of join record state. The runs of a state table are joined unmerged: weights multiply and add up, so a record and
its later tombstone cancel in the output. A change set is the broadcast side, so the other one is read where it lies and
nothing of it is shuffled. For the same reason Spark does not consolidate the change sets first: that would cost a shuffle
for each side, and rows that cancel do so in the output too. Those that the driver holds are (``EpochContext.share``): an
update of columns that the view does not read ends here.

Cost: |ΔL| + |ΔR| + the matches, and one pass over the key columns of the other side that files and pages cannot skip.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.in_place import match_whole, provably_absent_before, rows_now
from relstate_dagster.jobs.operators.old_rows import AskedForError, computable
from relstate_dagster.jobs.operators.pairs import LEFT_WEIGHT, RIGHT_WEIGHT, Side, sides_of, weighted
from relstate_dagster.jobs.operators.row_rules import joined
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Join
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.row_sums import consolidate


def change(ctx: EpochContext, node: Join, left: RowSet | None, right: RowSet | None) -> OperatorResult:
    """Pairs of the two change sets with the other sides and with each other."""
    sides, is_new = sides_of(ctx, node), ctx.state_is_new(node)
    if ctx.leaves_out_old_errors:
        _check_values_asked_for(ctx, (sides[0], left), (sides[1], right))
    if not ctx.leaves_out_old_errors or node.residual is None:
        return OperatorResult(_pairs(ctx, node, sides, left, right, is_new=is_new))
    pairs = _pairs(ctx, replace(node, residual=None), sides, left, right, is_new=is_new)
    if pairs is None:
        return OperatorResult(None)
    return OperatorResult(ctx.row_sets.of(computable(ctx, node, pairs).frame.where(node.residual)))


def _check_values_asked_for(ctx: EpochContext, *sides: tuple[Side, RowSet | None]) -> None:
    """Look for rows that ask for a value which cannot be computed (:mod:`.jobs.operators.old_rows`).

    Raises
    ------
    AskedForError : a side has no value, for an error of its expression, and the other has rows.
    """
    changed = next((change for _, change in sides if change is not None), None)
    for value, other in (sides, sides[::-1]):
        if changed is None or value[0].node not in ctx.asked_for_by_joins:
            continue
        if [_has_rows_now(ctx, *side, changed) for side in (value, other)] == [False, True]:
            raise AskedForError


def _has_rows_now(ctx: EpochContext, side: Side, change: RowSet | None, changed: RowSet) -> bool:
    if side.table is None:
        rows = rows_now(ctx, side.node, changed, ())
    else:
        columns = [*columns_of(side.node.column_names), WEIGHT]
        rows = replace(side, wanted=()).matching_rows(ctx, changed).withColumnRenamed(side.weight, WEIGHT).select(columns)
        rows = rows if change is None else rows.union(change.frame.select(columns))
    return not consolidate(rows, side.node.schema).isEmpty()


def _pairs(
    ctx: EpochContext,
    node: Join,
    sides: tuple[Side, Side],
    left: RowSet | None,
    right: RowSet | None,
    *,
    is_new: bool,
) -> RowSet | None:
    left_side, right_side = sides
    columns = columns_of(node.column_names)
    product = f"{LEFT_WEIGHT} * {RIGHT_WEIGHT}"
    whole = None if is_new else _matched_whole(ctx, node, (left, left_side), (right, right_side))
    if whole is not None:
        return ctx.row_sets.of(whole.selectExpr(*columns, f"{product} AS {WEIGHT}"))
    left, right = ctx.in_parallel(
        partial(_received, ctx, left_side, left, is_new=is_new), partial(_received, ctx, right_side, right, is_new=is_new)
    )

    def met(changed: RowSet, side: Side, other: Side) -> DataFrame:
        pairs = joined(node, other.matching_rows(ctx, changed), changed.broadcastable(weighted(changed.frame, side.weight)))
        return pairs.selectExpr(*columns, f"{product} AS {WEIGHT}")

    alone = None if is_new else _has_all(ctx, left, right, left_side, right_side)
    if alone is not None:
        return ctx.row_sets.of(met(*alone))
    parts: list[DataFrame] = []
    if not is_new:
        changes = ((left, left_side, right_side), (right, right_side, left_side))
        parts += ctx.in_parallel(*(partial(met, rows, side, other) for rows, side, other in changes if rows is not None))
    times = 1 if is_new else 1 - node.left_in_place - node.right_in_place
    if left is not None and right is not None and times:
        pairs = joined(node, weighted(left.frame, LEFT_WEIGHT), weighted(right.frame, RIGHT_WEIGHT))
        parts.append(pairs.selectExpr(*columns, f"{'' if times > 0 else '-'}{product} AS {WEIGHT}"))
    return ctx.row_sets.of(reduce(DataFrame.union, parts)) if parts else None


def _has_all(
    ctx: EpochContext, left: RowSet | None, right: RowSet | None, left_side: Side, right_side: Side
) -> tuple[RowSet, Side, Side] | None:
    """The change set that makes all pairs, its side, and the other side.

    It meets the other side as of now. ``None`` if uncertain.

    It is the one whose own side held nothing before that the other change set matches, and of two such ones the smaller.
    """
    in_place = left_side.table is None and right_side.table is None
    if left is None or right is None or not in_place:
        return None
    both = [(left, left_side, right, right_side), (right, right_side, left, left_side)]
    both.sort(key=lambda ways: ways[0].most_rows)
    for changed, side, met, other in both:
        if provably_absent_before(ctx, side.node, met, side.wanted):
            return changed, side, other
    return None


def _matched_whole(
    ctx: EpochContext, node: Join, left: tuple[RowSet | None, Side], right: tuple[RowSet | None, Side]
) -> DataFrame | None:
    """Pairs of the only change set with a side read whole; else ``None``.

    For a change set that no other operator reads.
    """
    for (changed, side), (unchanged, other) in ((left, right), (right, left)):
        in_place = side.table is None and other.table is None
        if changed is not None and unchanged is None and in_place:
            return match_whole(ctx, node, other.node, other.wanted, weighted(changed.frame, side.weight), other.weight)
    return None


def _received(ctx: EpochContext, side: Side, change_set: RowSet | None, *, is_new: bool) -> RowSet | None:
    """A side's change set, shared and written to its state; ``None`` if empty."""
    if change_set is None:
        return None
    if side.table is None and is_new:
        return change_set
    shared = side.shared(ctx, change_set)
    if shared.is_empty:
        return None
    if side.table is not None:
        side.table.write(shared.frame)
    return shared
