"""Generate: each changed row once per generated element (explode, inline, …).

Linear: no state, cost |Δ|.
"""

from __future__ import annotations

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import Generate
from relstate_dagster.state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Generate, child: RowSet | None) -> OperatorResult:
    """The child's columns and the generated ones, under the row's weight."""
    return OperatorResult(None if child is None else ctx.row_sets.of(rows_by_rule(node, [child.frame], [WEIGHT])))
