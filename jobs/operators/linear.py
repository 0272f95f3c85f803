"""Linear operators: Δ(f(R)) = f(ΔR), and no state.

Filter, project, union all, expand (GROUPING SETS, ROLLUP, CUBE) and generate (explode, inline, …) apply the rule of their node
(:mod:`.jobs.operators.row_rules`) to every changed row, under its weight. Rows that become equal keep their weights apart.

A projection of a change set that the driver holds for several readers is an exception. A column that one of them does not read
may be the only one that has changed, and rows that cancel are not looked up.

Cost: |Δ|, of expand times its projections.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.old_rows import computable
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import Expand, Filter, Generate, PlanNode, Project, UnionAll
from relstate_dagster.state_lib.constants import WEIGHT


def evaluated(ctx: EpochContext, node: PlanNode, *inputs: DataFrame) -> DataFrame:
    """Weighted rows of a node by its rule."""
    return rows_by_rule(node, [computable(ctx, node, ctx.row_sets.of(rows)).frame for rows in inputs], [WEIGHT])


def change(ctx: EpochContext, node: Expand | Generate | Filter, child: RowSet | None) -> OperatorResult:
    """The rows of every changed row."""
    return OperatorResult(None if child is None else ctx.row_sets.of(evaluated(ctx, node, child.frame)))


def union(ctx: EpochContext, node: UnionAll, *inputs: RowSet | None) -> OperatorResult:
    """The changed rows of all branches, whose columns are the same by position."""
    changed = [rows for rows in inputs if rows is not None]
    if len(changed) < 2:
        return OperatorResult(changed[0] if changed else None)
    return OperatorResult(ctx.row_sets.of(evaluated(ctx, node, *(rows.frame for rows in changed))))


def filtered(ctx: EpochContext, node: Filter, child: RowSet | None) -> OperatorResult:
    """Changed rows for which the condition is true.

    Others stay, with weight 0, for what they carry.
    """
    if child is None or not ctx.fused_columns.columns:
        return change(ctx, node, child)
    weighted = child.frame.withColumn(WEIGHT, F.expr(f"IF({node.condition}, {WEIGHT}, 0L)"))
    return OperatorResult(ctx.row_sets.of(weighted.where(ctx.fused_columns.kept)))


def projected(ctx: EpochContext, node: Project, child: RowSet | None) -> OperatorResult:
    """Every expression on every changed row, with weight and carried rows."""
    if child is None:
        return OperatorResult(None)
    rows, columns = computable(ctx, node, child), ctx.fused_columns.columns
    frame = rows_by_rule(node, [rows.frame], [WEIGHT, *columns])
    found = rows.projected(frame, node.passed_on, is_whole=len(node.passed_on) == len(node.expressions) and not columns)
    return OperatorResult(None if found.is_empty else found)
