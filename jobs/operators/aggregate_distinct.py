"""Distinct state: an aggregate over the distinct values of a group.

It changes where the count of a value goes 0 ↔ n.

Of the values that an epoch changes, and of no others, the counts are looked up. Values that appear or disappear are a
change of the distinct values, which is folded into accumulators as any change is (:mod:`.jobs.operators.aggregate_value`).
Cost: the values changed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators import aggregate_value
from relstate_dagster.jobs.operators.aggregate_counted import changed_counts, never_negative, reconciled_counts, values_of
from relstate_dagster.jobs.operators.aggregate_group import GroupFrames, Tables, only
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import AggCall, Aggregate
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.state_table import StateTable


def fold(
    ctx: EpochContext,
    node: Aggregate,
    call: AggCall,
    position: int,
    delta: RowSet,
    tables: Tables,
    frames: GroupFrames,
) -> None:
    """Write the changed counts, and add the changes of the call's accumulators."""
    table = tables.counts[position]
    changed = reconciled_counts(ctx, node, call, table, changed_counts(ctx, node, call, delta))
    table.write(changed.frame)
    occurring = _newly_occurring(ctx, node, call, table, changed)
    folds = aggregate_value.folds_of(node, position, tables)
    folded = occurring.groupBy(*columns_of(node.group)).agg(*(F.expr(f"{sql} AS {name}") for name, sql in folds.items()))
    frames.add(folded, {name: only(name) for name in folds})


def _newly_occurring(ctx: EpochContext, node: Aggregate, call: AggCall, table: StateTable, changed: RowSet) -> DataFrame:
    """Values that begin to occur in a group (weight 1) or cease to (−1)."""
    names = [*node.group, *values_of(call)]
    columns, zero = columns_of(names), F.lit(0).cast("bigint")
    counts = changed.frame.select(*columns, zero.alias("_old"), F.col(WEIGHT).alias("_delta"))
    if not ctx.state_is_new(node):
        on = [(name, name) for name in names]
        null_safe = [name in node.group for name in names]
        runs = table.storage.lookup(
            changed.frame,
            on,
            null_safe,
            names,
            hint=changed.hint,
            lookup_keys=changed.lookup_keys(on, null_safe=null_safe),
        )
        stored = runs.select(*columns, F.col(STATE_WEIGHT).alias("_old"), zero.alias("_delta"))
        summed = stored.union(counts).groupBy(*columns)
        counts = summed.agg(F.sum("_old").alias("_old"), F.sum("_delta").alias("_delta"))
    counts = counts.withColumn("_new", never_negative(F.col("_old") + F.col("_delta"), call, table))
    weight = f"CAST(CAST(_new > 0 AS int) - CAST(_old > 0 AS int) AS bigint) AS {WEIGHT}"
    return counts.selectExpr(*columns, weight).where(f"{WEIGHT} != 0")
