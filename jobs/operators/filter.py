"""Filter: Δ(σ(R)) = σ(ΔR). Linear: no state, cost |Δ|."""

from __future__ import annotations

from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.old_rows import computable
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import Filter
from relstate_dagster.state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Filter, child: RowSet | None) -> OperatorResult:
    """Changed rows for which the condition is true.

    Others stay, with weight 0, for what they carry.
    """
    if child is None:
        return OperatorResult(None)
    if ctx.fused_columns.columns:
        met = child.frame.withColumn(WEIGHT, F.expr(f"IF({node.condition}, {WEIGHT}, 0L)")).where(ctx.fused_columns.kept)
    else:
        met = rows_by_rule(node, [computable(ctx, node, child).frame], [WEIGHT])
    return OperatorResult(ctx.row_sets.of(met))
