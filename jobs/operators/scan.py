"""Scan: Δ(relation) between two epochs. No state, cost |Δ|."""

from __future__ import annotations

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Scan
from relstate_dagster.state_lib.columns import select
from relstate_dagster.state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Scan) -> OperatorResult:
    """The change set of the relation: the node's columns and the weight."""
    changes = ctx.relations.changes(node.relation)
    if changes is None:
        return OperatorResult(None)
    return OperatorResult(ctx.row_sets.of(select(changes, [*columns_of(node.column_names), WEIGHT])))
