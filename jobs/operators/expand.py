"""Expand: each changed row once per projection (GROUPING SETS, ROLLUP, CUBE). Linear: no state, cost |Δ| × projections."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.planner.nodes import Expand
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.sql_text import quoted


def change(_ctx: EpochContext, node: Expand, child: DataFrame | None) -> DataFrame | None:
    """The projections of every changed row, all of them under its weight."""
    if child is None:
        return None
    structs = []
    for projection in node.projections:
        fields = ", ".join(
            f"CAST({sql} AS {f.data_type}) AS {quoted(f.name)}" for sql, f in zip(projection, node.columns, strict=True)
        )
        structs.append(f"struct({fields})")
    return child.select(F.expr(f"inline(array({', '.join(structs)}))"), WEIGHT)
