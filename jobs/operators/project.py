"""Project: Δ(π(R)) = π(ΔR). Linear: no state, cost |Δ|.

Rows that become equal keep their weights apart.

A change set that the driver holds for several readers is an exception. A column that one of them does not read may be the
only one that has changed, and rows that cancel are not looked up.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.old_rows import computable
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.plan.nodes import Project
from relstate_dagster.state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Project, child: DataFrame | None) -> OperatorResult:
    """Every expression on every changed row, with weight and carried rows."""
    if child is None:
        return OperatorResult(None)
    child = computable(ctx, node, child)
    projected = rows_by_rule(node, [child], [WEIGHT, *ctx.fused_columns.columns])
    known = ctx.frames.values_of(child)
    if known is None:
        return OperatorResult(projected)
    kept = {ours: known[theirs] for ours, theirs in node.passed_on.items() if theirs in known.column_names}
    rows = ctx.frames.rows_of(child)
    if rows is not None and len(kept) == len(node.expressions) and not ctx.fused_columns.columns:
        left = ctx.frames.consolidated(pa.table({**kept, WEIGHT: rows[WEIGHT]}))
        if left.num_rows < rows.num_rows:
            return OperatorResult(ctx.frames.of_rows(left, projected.schema) if left.num_rows else None)
    return OperatorResult(ctx.frames.derived(projected, pa.table(kept)) if kept else projected)
