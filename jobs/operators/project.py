"""Project: Δ(π(R)) = π(ΔR). Linear: no state, cost |Δ|.

Rows that become equal keep their weights apart.

A change set that the driver holds for several readers is an exception. A column that one of them does not read may be the
only one that has changed, and rows that cancel are not looked up.
"""

from __future__ import annotations

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.old_rows import computable
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import Project
from relstate_dagster.state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Project, child: RowSet | None) -> OperatorResult:
    """Every expression on every changed row, with weight and carried rows."""
    if child is None:
        return OperatorResult(None)
    rows = computable(ctx, node, child)
    columns = ctx.fused_columns.columns
    frame = rows_by_rule(node, [rows.frame], [WEIGHT, *columns])
    projected = rows.projected(frame, node.passed_on, is_whole=len(node.passed_on) == len(node.expressions) and not columns)
    return OperatorResult(None if projected.is_empty else projected)
