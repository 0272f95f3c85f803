"""Project: Δ(π(R)) = π(ΔR). Linear: no state, cost |Δ|. Rows that become equal keep their weights apart."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.context import EpochContext
from jobs.planner.nodes import Project
from state_lib.constants import WEIGHT


def change(_ctx: EpochContext, node: Project, child: DataFrame | None) -> DataFrame | None:
    """Every expression computed on every changed row; the weight passes through."""
    if child is None:
        return None
    return child.select(*(F.expr(e.sql).alias(e.output.name) for e in node.expressions), WEIGHT)
