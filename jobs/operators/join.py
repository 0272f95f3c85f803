"""Inner join: Δ(L ⋈ R) out of the two change sets and the other side of each.

With X₋ a side as of the last epoch and X₊ as of this one,

    ΔL ⋈ R₋ + L₋ ⋈ ΔR + ΔL ⋈ ΔR     both sides in state tables, which hold X₋
    ΔL ⋈ R₊ + L₋ ⋈ ΔR               right side in place, where X₊ is read; likewise the left side
    ΔL ⋈ R₊ + L₊ ⋈ ΔR − ΔL ⋈ ΔR     both sides in place

State: each side that is not looked up in place (:mod:`jobs.planner.in_place`), under its join key, in one of the three
forms of join record state. The runs of a state table are joined unmerged: weights multiply and add up, so a record and
its later tombstone cancel in the output. A change set is the broadcast side, so the other one is read where it lies and
nothing of it is shuffled. For the same reason the change sets are not consolidated first: that would cost a shuffle for
each side, and rows that cancel do so in the output too.

Cost: |ΔL| + |ΔR| + the matches, and one pass over the key columns of the other side that files and pages cannot skip.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from jobs.operators.context import EpochContext, columns_of
from jobs.operators.in_place import match
from jobs.operators.pairs import LEFT_WEIGHT, RIGHT_WEIGHT, Side, sides_of, weighted
from jobs.planner.nodes import Join
from state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Join, left: DataFrame | None, right: DataFrame | None) -> DataFrame | None:
    """The pairs that the two change sets make with the other side and with each other."""
    left_side, right_side = sides_of(ctx, node)
    if left is not None:
        left = _received(ctx, left_side, left)
    if right is not None:
        right = _received(ctx, right_side, right)
    columns = columns_of(node.column_names)
    product = f"{LEFT_WEIGHT} * {RIGHT_WEIGHT}"
    parts = []
    if not ctx.is_backfill:
        for changed, side, other in ((left, left_side, right_side), (right, right_side, left_side)):
            if changed is not None:
                pairs = match(node, other.met_by(ctx, changed), ctx.small(changed, weighted(changed, side.weight)))
                parts.append(pairs.selectExpr(*columns, f"{product} AS {WEIGHT}"))
    times = 1 if ctx.is_backfill else 1 - node.left_in_place - node.right_in_place
    if left is not None and right is not None and times:
        pairs = match(node, weighted(left, LEFT_WEIGHT), weighted(right, RIGHT_WEIGHT))
        parts.append(pairs.selectExpr(*columns, f"{'' if times > 0 else '-'}{product} AS {WEIGHT}"))
    return reduce(DataFrame.union, parts) if parts else None


def _received(ctx: EpochContext, side: Side, change_set: DataFrame) -> DataFrame | None:
    """A side's change set, shared by those who read it and written to its state; ``None`` where it turned out empty."""
    if side.table is None and ctx.is_backfill:
        return change_set
    shared = ctx.share(change_set)
    if ctx.is_empty(shared):
        return None
    if side.table is not None:
        side.table.write(shared)
    return shared
