"""Values: constant rows, which all arrive in the first epoch. No state."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.plan.nodes import Values
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.sql_text import quoted


def change(ctx: EpochContext, node: Values) -> OperatorResult:
    """All rows with weight 1 where all rows are asked for, else nothing."""
    if not ctx.state_is_new(node) or not node.rows:
        return OperatorResult(None)
    return OperatorResult(ctx.row_sets.of(weighted_rows(ctx.spark, node)))


def weighted_rows(spark: SparkSession, node: Values) -> DataFrame:
    """The rows, with weights; there has to be one."""
    weight = f"CAST(1 AS BIGINT) AS {quoted(WEIGHT)}"
    selects = []
    for row in node.rows:
        values = [f"CAST({value} AS {f.data_type}) AS {quoted(f.name)}" for value, f in zip(row, node.columns, strict=True)]
        selects.append("SELECT " + ", ".join([*values, weight]))
    return spark.sql(" UNION ALL ".join(selects))
