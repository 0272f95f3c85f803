"""Union all: Δ(A ∪ B) = ΔA ∪ ΔB. Linear: no state, cost |Δ|."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.plan.nodes import UnionAll


def change(_ctx: EpochContext, _node: UnionAll, *inputs: DataFrame | None) -> OperatorResult:
    """The changed rows of all branches, whose columns are the same by position."""
    changed = [df for df in inputs if df is not None]
    return OperatorResult(reduce(DataFrame.union, changed) if changed else None)
