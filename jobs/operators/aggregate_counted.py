"""Extreme and distinct state: how often each value occurs in each group.

A min, max or DISTINCT call depends only on which values occur: those whose count is above 0. The change adds to the
counts; the call is then taken over the values that occurred before, and over those that occur now. Rows whose count
goes 0 ↔ n are what makes the two differ.

The storage key is ``group key | value`` (descending for max), so that the extreme comes first. Counting equal values
instead of appending the upstream's stream key keeps one row where many rows share a value.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.operators.aggregate_group import Affected, GroupFrames, Tables, only
from jobs.operators.context import EpochContext
from jobs.operators.z_sets import columns_of
from jobs.planner.nodes import AggCall, Aggregate, quoted
from jobs.planner.state_tables import decimal_parts, value_column
from state_lib.constants import STATE_WEIGHT, WEIGHT


def fold(
    ctx: EpochContext,
    node: Aggregate,
    call: AggCall,
    position: int,
    delta: DataFrame,
    tables: Tables,
    affected: Affected,
    frames: GroupFrames,
) -> None:
    """Write the changed counts; add the call's old and new value per group to the frames."""
    table = tables.by_call[position]
    group = columns_of(node.group)
    values = [value_column(n) for n in range(len(call.arguments))]
    present = delta
    for argument in call.arguments:
        present = present.where(F.col(quoted(argument)).isNotNull())
    renamed = [F.col(quoted(a)).alias(v) for a, v in zip(call.arguments, values, strict=True)]
    changed = present.select(*group, *renamed, WEIGHT).groupBy(*group, *values).agg(F.sum(WEIGHT).alias(WEIGHT))
    changed = ctx.frames.share(changed.where(F.col(WEIGHT) != 0))
    table.write(changed)
    zero = F.lit(0).cast("bigint")
    counts = changed.select(*group, *values, zero.alias("_old"), F.col(WEIGHT).alias("_delta"))
    if not ctx.is_backfill:
        runs = affected.stored(table, node.group, [*node.group, *values])
        stored = runs.select(*group, *values, F.col(STATE_WEIGHT).alias("_old"), zero.alias("_delta"))
        both = stored.union(counts).groupBy(*group, *values)
        counts = both.agg(F.sum("_old").alias("_old"), F.sum("_delta").alias("_delta"))
    problem = F.lit(f"a value of {call.label} is retracted more often than it occurs (table_id "
                    f"{table.desc.table_id}); the input contradicts the state, rebuild with --full-refresh")  # fmt: skip
    now = F.col("_old") + F.col("_delta")
    counts = counts.withColumn("_new", F.when(now < 0, F.raise_error(problem).cast("bigint")).otherwise(now))
    results = [_over(call, values, F.col(f"_{v}") > 0).alias(f"_{v}_{position}") for v in ("old", "new")]
    frames.add(counts.groupBy(*group).agg(*results), {f"_{v}_{position}": only(f"_{v}_{position}") for v in ("old", "new")})


def _over(call: AggCall, values: list[str], occurs: Column) -> Column:
    """The call over the distinct values that occur."""
    value = F.when(occurs, F.col(values[0]))
    if call.function == "min":
        return F.min(value)
    if call.function == "max":
        return F.max(value)
    if call.function == "count":
        return F.count_if(occurs)
    if call.function == "sum":
        return F.sum(value)
    return F.avg(value if decimal_parts(call.argument_types[0]) else value.cast("double"))
