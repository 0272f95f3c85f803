"""Project: Δ(π(R)) = π(ΔR). Linear: no state, cost |Δ|. Rows that become equal keep their weights apart."""

from __future__ import annotations

from pyspark.sql import DataFrame

from jobs.operators.context import EpochContext
from jobs.planner.nodes import Project, quoted
from state_lib.constants import WEIGHT


def change(_ctx: EpochContext, node: Project, child: DataFrame | None) -> DataFrame | None:
    """Every expression computed on every changed row; the weight passes through."""
    if child is None:
        return None
    return child.selectExpr(*(f"{e.sql} AS {quoted(e.output.name)}" for e in node.expressions), WEIGHT)
