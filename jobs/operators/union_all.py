"""Union all: Δ(A ∪ B) = ΔA ∪ ΔB. Linear: no state, cost |Δ|."""

from __future__ import annotations

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.plan.nodes import UnionAll
from relstate_dagster.state_lib.constants import WEIGHT


def change(_ctx: EpochContext, node: UnionAll, *inputs: DataFrame | None) -> OperatorResult:
    """The changed rows of all branches, whose columns are the same by position."""
    changed = [df for df in inputs if df is not None]
    return OperatorResult(rows_by_rule(node, changed, [WEIGHT]) if changed else None)
