"""Union all: Δ(A ∪ B) = ΔA ∪ ΔB. Linear: no state, cost |Δ|."""

from __future__ import annotations

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import UnionAll
from relstate_dagster.state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: UnionAll, *inputs: RowSet | None) -> OperatorResult:
    """The changed rows of all branches, whose columns are the same by position."""
    changed = [rows for rows in inputs if rows is not None]
    if len(changed) < 2:
        return OperatorResult(changed[0] if changed else None)
    return OperatorResult(ctx.row_sets.of(rows_by_rule(node, [rows.frame for rows in changed], [WEIGHT])))
