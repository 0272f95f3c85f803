"""Aggregate: folds the change into each affected group, and emits the group's old row and its new one.

For every affected group g (one with a changed row), −(g, old results) if g had rows, +(g, new results) if it has rows,
nothing if both are equal. A global aggregate (no group columns) always has its one row. With no calls this is DISTINCT.

How a call is kept follows from :func:`jobs.planner.state_tables.call_strategy`, one module each:

* value state (:mod:`jobs.operators.aggregate_value`): old accumulators plus the folded change; cost |affected groups|.
* extreme and distinct state (:mod:`jobs.operators.aggregate_counted`): how often each value occurs in the group; cost
  the distinct values of the affected groups.
* materialized input (:mod:`jobs.operators.aggregate_input`): Spark's own aggregate over the group's input rows, before
  and after; cost the rows of the affected groups.

Each strategy contributes frames keyed by group; one last grouping brings them together.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.operators import aggregate_counted, aggregate_input, aggregate_value
from jobs.operators.aggregate_group import GroupFrames, Tables
from jobs.operators.context import EpochContext, columns_of
from jobs.planner.nodes import Aggregate, quoted
from jobs.planner.state_tables import GROUP_ROWS, CallStrategy, call_strategy
from state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Aggregate, child: DataFrame | None) -> DataFrame | None:
    """The change set of the groups: group columns, then the calls' results."""
    if child is None:
        if node.group or not ctx.is_backfill:
            return None
        child = _no_rows(ctx, node)
    tables = _tables_by_role(ctx, node)
    # Value states fold the change once; every other table reads it again.
    readers = 1 + len(tables.by_call) - len(tables.value_tables) + (tables.input is not None)
    delta = ctx.share(child) if readers > 1 or tables.group_rows is not None else child
    frames = GroupFrames(node.group)
    affected = aggregate_value.fold(ctx, node, delta, tables, frames)
    if affected is None:
        return None
    for position, call in enumerate(node.calls):
        if tables.strategy(position) in (CallStrategy.EXTREME, CallStrategy.DISTINCT):
            aggregate_counted.fold(ctx, node, call, position, delta, tables, affected, frames)
    if tables.input is not None:
        aggregate_input.fold(ctx, node, delta, tables, affected, frames)
    groups = ctx.share(aggregate_value.versions(node, tables, frames.together()))
    aggregate_value.write(ctx, node, tables, groups)
    return _emit(node, tables, groups)


def _tables_by_role(ctx: EpochContext, node: Aggregate) -> Tables:
    """Tell the node's tables apart, in the order in which ``infer_state_tables`` lists them."""
    strategies = tuple(call_strategy(c, append_only=node.child.append_only) for c in node.calls)
    remaining = list(ctx.tables[node])
    group_rows = remaining.pop(0) if CallStrategy.VALUE not in strategies else None
    by_call = {
        position: remaining.pop(0)
        for position, strategy in enumerate(strategies)
        if strategy is not CallStrategy.MATERIALIZED_INPUT
    }
    return Tables(strategies, by_call, group_rows, remaining.pop(0) if remaining else None)


def _emit(node: Aggregate, tables: Tables, groups: DataFrame) -> DataFrame:
    old = [_result(node, tables, position, "old") for position in range(len(node.calls))]
    new = [_result(node, tables, position, "new") for position in range(len(node.calls))]
    lives_old, lives_new = _lives(node, "old"), _lives(node, "new")
    names = [call.output.name for call in node.calls]
    same = lives_old & lives_new
    for call, before, after in zip(node.calls, old, new, strict=True):
        if call.output.data_type.upper().startswith("MAP"):
            same = F.lit(False)  # maps do not compare; an update that changes nothing is only wasteful
            break
        same = same & before.eqNullSafe(after)
    group = columns_of(node.group)
    zero = F.lit(0).cast("bigint")

    def version(weight: Column, results: list[Column]) -> Column:
        values = [value.alias(name) for value, name in zip(results, names, strict=True)]
        return F.struct(weight.alias(WEIGHT), *values)

    versions = F.array(
        version(F.when(lives_old & ~same, F.lit(-1).cast("bigint")).otherwise(zero), old),
        version(F.when(lives_new & ~same, F.lit(1).cast("bigint")).otherwise(zero), new),
    )
    rows = groups.select(*group, F.explode(versions).alias("_version")).where(F.col(f"_version.{WEIGHT}") != 0)
    results = [F.col("_version").getField(n).alias(n) for n in names]
    return rows.select(*group, *results, F.col("_version").getField(WEIGHT).alias(WEIGHT))


def _lives(node: Aggregate, version: str) -> Column:
    if not node.group:
        return F.col(f"_stored_{version}")
    return F.col(f"_{version}{GROUP_ROWS}") > 0


def _result(node: Aggregate, tables: Tables, position: int, version: str) -> Column:
    call = node.calls[position]
    if tables.strategy(position) is CallStrategy.VALUE:
        return aggregate_value.result(call, position, version)
    value = F.col(f"_{version}_{position}")
    if call.function == "count":
        value = F.coalesce(value, F.lit(0))
    elif not node.group and tables.strategy(position) is CallStrategy.MATERIALIZED_INPUT:
        value = aggregate_input.or_empty_result(call, value)
    return value.cast(call.output.data_type)


def _no_rows(ctx: EpochContext, node: Aggregate) -> DataFrame:
    fields = ", ".join(f"{quoted(f.name)} {f.data_type}" for f in node.child.schema)
    separator = ", " if fields else ""
    return ctx.spark.createDataFrame([], f"{fields}{separator}{quoted(WEIGHT)} bigint")
