"""Expand: each changed row once per projection (GROUPING SETS, ROLLUP, CUBE).

Linear: no state, cost |Δ| × projections.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.old_rows import computable
from relstate_dagster.jobs.plan.nodes import Expand
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.sql_text import quoted


def change(ctx: EpochContext, node: Expand, child: DataFrame | None) -> OperatorResult:
    """The projections of every changed row, all of them under its weight."""
    return OperatorResult(None if child is None else computable(ctx, node, child).select(F.expr(projected(node)), WEIGHT))


def projected(node: Expand) -> str:
    """The columns of all projections of a row, a row each: SQL text."""
    structs = []
    for projection in node.projections:
        fields = ", ".join(
            f"CAST({sql} AS {f.data_type}) AS {quoted(f.name)}" for sql, f in zip(projection, node.columns, strict=True)
        )
        structs.append(f"struct({fields})")
    return f"inline(array({', '.join(structs)}))"
