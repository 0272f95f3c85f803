"""Inner join: Δ(L ⋈ R) = ΔL ⋈ R₋ + L₋ ⋈ ΔR + ΔL ⋈ ΔR, where X₋ is a side as of the last epoch.

State: both sides, each under its join key, in one of the three forms of join record state. The runs of a state table
are joined unmerged: weights multiply and add up, so a record and its later tombstone cancel in the output. A change set
is the broadcast side, so the state is read where it lies and nothing of it is shuffled. For the same reason the change
sets are not consolidated first: that would cost a shuffle for each side, and rows that cancel do so in the output too.

Cost: |ΔL| + |ΔR| + the matches, and one pass over the key columns of the state that files and pages cannot skip.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.context import EpochContext, columns_of
from jobs.planner.nodes import Join
from state_lib.constants import STATE_WEIGHT, WEIGHT
from state_lib.state_table import StateTable
from state_lib.within import Within

LEFT_WEIGHT = "_left_weight"
RIGHT_WEIGHT = "_right_weight"


def change(ctx: EpochContext, node: Join, left: DataFrame | None, right: DataFrame | None) -> DataFrame | None:
    """The pairs that the two change sets make with the other side's state and with each other."""
    left_table, right_table = ctx.tables[node]
    pairs = []
    if left is not None:
        left = _written(ctx, left_table, left)
    if right is not None:
        right = _written(ctx, right_table, right)
    if left is not None and not ctx.is_backfill:
        within = ctx.within(left, [(key.right, key.left) for key in node.keys if not key.null_safe])
        stored = weighted_runs(right_table, RIGHT_WEIGHT, within)
        pairs.append(match(node, stored, ctx.small(weighted(left, LEFT_WEIGHT))))
    if right is not None and not ctx.is_backfill:
        within = ctx.within(right, [(key.left, key.right) for key in node.keys if not key.null_safe])
        stored = weighted_runs(left_table, LEFT_WEIGHT, within)
        pairs.append(match(node, stored, ctx.small(weighted(right, RIGHT_WEIGHT))))
    if left is not None and right is not None:
        pairs.append(match(node, weighted(left, LEFT_WEIGHT), weighted(right, RIGHT_WEIGHT)))
    if not pairs:
        return None
    columns = columns_of(node.column_names)
    product = f"{LEFT_WEIGHT} * {RIGHT_WEIGHT} AS {WEIGHT}"
    return reduce(DataFrame.union, (p.selectExpr(*columns, product) for p in pairs))


def _written(ctx: EpochContext, table: StateTable, change_set: DataFrame) -> DataFrame | None:
    """A side's change set, shared and written to its state; ``None`` where it turned out to be empty."""
    shared = ctx.share(change_set)
    if ctx.is_empty(shared):
        return None
    table.write(shared)
    return shared


def weighted(change_set: DataFrame, weight: str) -> DataFrame:
    """A change set whose weight has a side's name."""
    return change_set.withColumnRenamed(WEIGHT, weight)


def weighted_runs(table: StateTable, weight: str, within: Within | None = None) -> DataFrame:
    """The unmerged rows of a side as of the last epoch, their weight under a side's name; those that can matter."""
    columns = [c.name for c in table.desc.schema.columns]
    runs = table.storage.runs(columns, within)
    return runs.selectExpr(*columns_of(columns), f"{STATE_WEIGHT} AS {weight}")


def match(node: Join, one: DataFrame, other: DataFrame) -> DataFrame:
    """Join two frames, one of each side, on the node's equalities and residual condition."""
    parts = [key.sql for key in node.keys]
    if node.residual is not None:
        parts.append(node.residual)
    if not parts:
        return one.crossJoin(other)
    return one.join(other, F.expr(" AND ".join(parts)), "inner")
