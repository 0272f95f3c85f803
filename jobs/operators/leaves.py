"""Nodes without inputs: scans, constants, and queries that run in full. No state.

* Scan: Δ(relation) between two epochs. Cost: |Δ|.
* Values: constant rows, which all arrive in the first epoch.
* Full query: Δ = the query in full on new inputs − the view's rows. Cost: the inputs and the view.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import FullQuery, Scan, Values
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.sql_text import quoted


def scan(ctx: EpochContext, node: Scan) -> OperatorResult:
    """The change set of the relation: the node's columns and the weight."""
    changes = ctx.relations.changes(node.relation)
    if changes is None:
        return OperatorResult(None)
    return OperatorResult(ctx.row_sets.of(select(changes, [*columns_of(node.column_names), WEIGHT])))


def full_query(ctx: EpochContext, node: FullQuery) -> OperatorResult:
    """The difference between the new and the old result, as a consolidated change set."""
    difference = ctx.full_query(node)
    return OperatorResult(None if difference is None else ctx.row_sets.of(consolidate(difference, node.schema)))


def values(ctx: EpochContext, node: Values) -> OperatorResult:
    """All rows with weight 1 where all rows are asked for, else nothing."""
    if not ctx.state_is_new(node) or not node.rows:
        return OperatorResult(None)
    return OperatorResult(ctx.row_sets.of(weighted_values(ctx.spark, node)))


def plain_values(spark: SparkSession, node: Values) -> DataFrame:
    """Constant rows without weights."""
    if node.rows:
        return weighted_values(spark, node).drop(WEIGHT)
    columns = (F.lit(None).cast(f.data_type).alias(f.name) for f in node.columns)
    return spark.range(0).select(*columns)


def weighted_values(spark: SparkSession, node: Values) -> DataFrame:
    """The rows, with weights; there has to be one."""
    weight = f"CAST(1 AS BIGINT) AS {quoted(WEIGHT)}"
    selects = []
    for row in node.rows:
        columns = [f"CAST({value} AS {f.data_type}) AS {quoted(f.name)}" for value, f in zip(row, node.columns, strict=True)]
        selects.append("SELECT " + ", ".join([*columns, weight]))
    return spark.sql(" UNION ALL ".join(selects))
