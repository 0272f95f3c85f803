"""Full query: Δ = the query in full on new inputs − the view's rows.

Cost: the inputs and the view.
"""

from __future__ import annotations

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.plan.nodes import FullQuery
from relstate_dagster.state_lib.row_sums import consolidate


def change(ctx: EpochContext, node: FullQuery) -> OperatorResult:
    """The difference between the new and the old result, as a consolidated change set."""
    difference = ctx.full_query(node)
    return OperatorResult(None if difference is None else ctx.row_sets.of(consolidate(difference, node.schema)))
