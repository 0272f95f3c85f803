"""Aggregates whose state of closed groups may be dropped (``source.watermark``).

Before the aggregate gets its change, late rows are looked for: those of groups that were closed. Of a group that its state
does not have any more, the rows are read again from the source, where they are a range of a column. The aggregate then gets
them all as a group that is new, and its old row is what it gives for the rows that were there before:

    Δ = A(ΔR without them, and their rows now) − A(their rows before)

So a watermark never changes a result. It says which state is worth keeping.

Cost: a look at the change; of late rows a lookup of their groups; of those that were dropped, the files of the source with
their range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.watermarks import Watermarks
from relstate_dagster.jobs.operators import aggregate
from relstate_dagster.jobs.operators.aggregate_group import same_group, stored_groups, tables_by_role
from relstate_dagster.jobs.operators.context import Closed, EpochContext, OperatorResult
from relstate_dagster.jobs.operators.linear import evaluated
from relstate_dagster.jobs.operators.one_pass import FusedColumns
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.closing import Closing, closings
from relstate_dagster.jobs.plan.nodes import Aggregate, PlanNode, Scan, walk
from relstate_dagster.state_lib.constants import ROW_ID, WEIGHT
from relstate_dagster.state_lib.literals import literal
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.state_table import StateTable


def closed_groups(plan: PlanNode, watermarks: Watermarks) -> dict[Aggregate, Closed]:
    """The aggregates that have groups which the sources' watermarks have closed."""
    return {
        # The rows of a group lie in the range of each way.
        node: Closed(ways[0], reduce(Column.__or__, (_condition(way, watermarks) for way in ways)))
        for node, ways in closings(plan, watermarks).items()
    }


def _condition(closing: Closing, watermarks: Watermarks) -> Column:
    of_source = {column.lower(): reached for column, reached in watermarks[closing.relation].items()}
    upper, reached = F.expr(closing.span.upper), of_source[closing.column.lower()].literal
    return F.coalesce(upper < reached if closing.span.is_included else upper <= reached, F.lit(False))


def change(ctx: EpochContext, node: Aggregate, child: RowSet | None) -> OperatorResult:
    """As :func:`.jobs.operators.aggregate.change`, whether or not the state has the groups that were closed."""
    if child is None or ctx.state_is_new(node):
        return aggregate.change(ctx, node, child)
    closed = ctx.closed[node]
    child = child.shared()
    late = ctx.row_sets.shared(child.frame.where(closed.condition))
    if late.is_empty:
        return aggregate.change(ctx, node, child)
    (counted,) = late.frame.agg(F.sum(F.abs(F.col(WEIGHT)))).collect()
    late_rows = counted[0] or 0
    dropped = ctx.row_sets.shared(_without_state(ctx, node, late))
    rows = _rows_now(ctx, node, closed.closing, dropped.frame)
    if rows is None:
        found = aggregate.change(ctx, node, child)
        return replace(found, late_rows=found.late_rows + late_rows)
    # Rows that are taken back here carry nothing.
    ctx = replace(ctx, fused_columns=FusedColumns())
    names = node.child.column_names
    now = ctx.row_sets.shared(_of_groups(rows, dropped, node.group)).frame.select(*columns_of(names), WEIGHT)
    came = _of_groups(late.frame, dropped, node.group).select(*columns_of(names), (-F.col(WEIGHT)).alias(WEIGHT))
    before = consolidate(now.union(came), node.child.schema)
    others = _of_groups(child.frame, dropped, node.group, "left_anti").select(*columns_of(names), WEIGHT)
    new = aggregate.change(ctx, node, ctx.row_sets.of(others.union(now)))
    old = aggregate.change(_on_the_side(ctx, node), node, ctx.row_sets.of(before))
    columns = columns_of(node.column_names)
    pairs = ((new.changes, 1), (old.changes, -1))
    parts = [rows.frame.select(*columns, F.col(WEIGHT) * sign) for rows, sign in pairs if rows is not None]
    late_rows += new.late_rows
    if not parts:
        return OperatorResult(None, late_rows)
    both = reduce(DataFrame.union, parts).toDF(*node.column_names, WEIGHT)
    # A group that is only there, or not, is there still: who reads it expects insertions alone.
    return OperatorResult(ctx.row_sets.of(consolidate(both, node.schema) if node.append_only else both), late_rows)


def _on_the_side(ctx: EpochContext, node: Aggregate) -> EpochContext:
    """A context with the same state, in which writes go nowhere."""
    tables = [StateTable(ctx.spark, table.storage, ctx.epoch) for table in ctx.tables[node]]
    return replace(ctx, tables={**ctx.tables, node: tables}, fused_columns=FusedColumns(), changes={})


def _without_state(ctx: EpochContext, node: Aggregate, late: RowSet) -> DataFrame:
    """The groups of late rows that the state does not have."""
    known = stored_groups(tables_by_role(ctx, node).groups, late, node.group)
    groups = late.frame.select(*columns_of(node.group)).distinct()
    return groups.alias("one").join(known.alias("other"), same_group(node.group, "one", "other"), "left_anti")


def _of_groups(rows: DataFrame, groups: RowSet, group: Sequence[str], how: str = "left_semi") -> DataFrame:
    wanted = groups.broadcastable(groups.frame).alias("other")
    return rows.alias("one").join(wanted, same_group(group, "one", "other"), how)


def _rows_now(ctx: EpochContext, node: Aggregate, closing: Closing, groups: DataFrame) -> DataFrame | None:
    """Input rows of some groups as of this epoch, and more; ``None`` without groups."""
    scan = next(n for n in walk(node.child) if isinstance(n, Scan))
    data_type = scan.field_named(closing.column).data_type
    ends = groups.selectExpr(
        f"CAST(min({closing.span.lower}) AS {data_type}) AS lower", f"CAST(max({closing.span.upper}) AS {data_type}) AS upper"
    )
    (bounds,) = ends.toArrow().to_pylist()
    if bounds["lower"] is None:
        return None
    lower, upper = (literal(bounds[end], data_type) for end in ("lower", "upper"))
    assert lower is not None
    assert upper is not None
    rows = ctx.relations.rows_between(scan.relation, closing.column, lower, upper)
    if ROW_ID in scan.column_names:  # which nothing above reads
        rows = rows.withColumn(ROW_ID, F.lit(None).cast("bigint"))
    return _evaluated(_on_the_side(ctx, node), node.child, rows.select(*columns_of(scan.column_names), WEIGHT))


def _evaluated(ctx: EpochContext, node: PlanNode, rows: DataFrame) -> DataFrame:
    """Rows of a scan, evaluated by the stateless operators above it."""
    if isinstance(node, Scan):
        return rows
    (child,) = node.children
    below = _evaluated(ctx, child, rows)
    return evaluated(ctx, node, below)
