"""Counts of each value in each group, which extreme and distinct state share.

A min, max or DISTINCT call depends only on which values occur: those whose count is above 0. The storage key is
``group key | value`` (descending for max), so that the extreme comes first. Equal values share a row, where RisingWave has one
for each row of the input, under the upstream's stream key.

The counts are written without being read: weights add up. Those of extremes may be left out for some groups
(:mod:`.jobs.operators.aggregate_extreme`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.agreement import agreeing_counts
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.aggregates.kind import value_column
from relstate_dagster.jobs.plan.nodes import AggCall, Aggregate
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.tuning import tuning


def values_of(call: AggCall) -> list[str]:
    """The columns of the counted values, one for each argument."""
    return [value_column(n) for n in range(len(call.arguments))]


def changed_counts(ctx: EpochContext, node: Aggregate, call: AggCall, delta: RowSet) -> RowSet:
    """Changes of the counts of a group's values.

    ``_weight`` is never 0.

    ``delta`` is shared. The result is shared or derived.
    """
    changed, values = counted(node, call, delta.frame), values_of(call)
    if delta.most_rows <= tuning().summed_by_each_rows:
        own = {name: name for name in (*node.group, WEIGHT)}
        return delta.derived(changed, {**own, **dict(zip(values, call.arguments, strict=True))})
    return ctx.row_sets.shared(changed)


def counted(node: Aggregate, call: AggCall, rows: DataFrame) -> DataFrame:
    """Sum of the weights of each value in a group, where it is not 0."""
    group, values = columns_of(node.group), values_of(call)
    for argument in call.arguments:
        rows = rows.where(F.col(quoted(argument)).isNotNull())
    renamed = [F.col(quoted(a)).alias(v) for a, v in zip(call.arguments, values, strict=True)]
    summed = rows.select(*group, *renamed, WEIGHT).groupBy(*group, *values).agg(F.sum(WEIGHT).alias(WEIGHT))
    return summed.where(f"{WEIGHT} != 0")


def reconciled_counts(ctx: EpochContext, node: Aggregate, call: AggCall, table: StateTable, changed: RowSet) -> RowSet:
    """Changed counts without those of rows that have expired."""
    if not ctx.may_have_expired:
        return changed
    # A value may have occurred before its group expired and came back.
    names = [*node.group, *values_of(call)]
    return ctx.row_sets.shared(agreeing_counts(table, changed, names, names))


def never_negative(count: Column, call: AggCall, table: StateTable) -> Column:
    """A count, or an error where a value would occur less than never."""
    return F.when(count < 0, F.expr(f"CAST({contradiction(call, table)} AS bigint)")).otherwise(count)


def contradiction(call: AggCall, table: StateTable) -> str:
    """The error, as SQL, that a value would occur less than never."""
    problem = text_literal(
        f"a value of {call.label} is retracted more often than it occurs (table_id {table.desc.table_id}); "
        "the input contradicts the state, rebuild with --full-refresh"
    )
    return f"raise_error({problem})"
