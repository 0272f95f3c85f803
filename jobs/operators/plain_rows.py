"""All rows of plan nodes, computed by Spark from all rows of the relations.

There are no weights, state or changes. The rows are those that the operators give: ties of windows and limits are broken in the
same way, and hidden columns have the same values.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.leaves import plain_values
from relstate_dagster.jobs.operators.row_rules import aggregated, joined, one_sided, rows_by_rule
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Aggregate, Join, PlanNode, Scan, Values
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.state_lib.sql_text import quoted


def plain_rows(ctx: EpochContext, root: PlanNode) -> DataFrame:
    """All rows of a node as of this epoch, one for each copy."""
    return _rows(ctx, root, used_columns(root), {})


def _rows(ctx: EpochContext, node: PlanNode, used: Mapping[str, set[str]], known: dict[PlanNode, DataFrame]) -> DataFrame:
    if node not in known:
        inputs = [_rows(ctx, child, used, known) for child in node.children]
        known[node] = _evaluated(ctx, node, used, inputs)
    return known[node]


def _evaluated(ctx: EpochContext, node: PlanNode, used: Mapping[str, set[str]], inputs: list[DataFrame]) -> DataFrame:
    columns = columns_of(node.column_names)
    match node:
        case Scan():
            read = used[node.relation]
            rows = ctx.relations.bag(node.relation, read)
            # What nothing reads may be a hidden column, and those are not always there.
            absent = {f.name: f"CAST(NULL AS {f.data_type}) AS {quoted(f.name)}" for f in node.columns if f.name not in read}
            return rows.selectExpr(*(absent.get(f.name, quoted(f.name)) for f in node.columns))
        case Values():
            return plain_values(ctx.spark, node)
        case Join() if node.keeps_right_columns:
            return joined(node, inputs[0], inputs[1], node.join_type.replace(" outer", "")).select(*columns)
        case Join():
            return one_sided(node, inputs[0], inputs[1], ())
        case Aggregate():
            return aggregated(node, inputs[0])
    return rows_by_rule(node, inputs, ())
