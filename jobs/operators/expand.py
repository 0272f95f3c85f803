"""Expand: each changed row once per projection (GROUPING SETS, ROLLUP, CUBE).

Linear: no state, cost |Δ| × projections.
"""

from __future__ import annotations

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.old_rows import computable
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import Expand
from relstate_dagster.state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Expand, child: RowSet | None) -> OperatorResult:
    """The projections of every changed row, all of them under its weight."""
    if child is None:
        return OperatorResult(None)
    return OperatorResult(ctx.row_sets.of(rows_by_rule(node, [computable(ctx, node, child).frame], [WEIGHT])))
