"""Filter: Δ(σ(R)) = σ(ΔR). Linear: no state, cost |Δ|."""

from __future__ import annotations

from pyspark.sql import DataFrame

from jobs.operators.context import EpochContext
from jobs.planner.nodes import Filter


def change(_ctx: EpochContext, node: Filter, child: DataFrame | None) -> DataFrame | None:
    """The changed rows for which the condition is true."""
    return None if child is None else child.where(node.condition)
