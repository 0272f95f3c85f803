"""Aggregate: folds the change into each group, and emits its old and new row.

For every affected group g (one with a changed row), −(g, old results) if g had rows, +(g, new results) if it has rows,
nothing if both are equal. A global aggregate (no group columns) always has its one row. With no calls this is DISTINCT.

How a call is kept is said by its kind (:mod:`.jobs.plan.aggregates`). Its strategy is one module each:

* value state (:mod:`.jobs.operators.aggregate_value`): old accumulators plus the folded change; cost |affected groups|.
* extreme state (:mod:`.jobs.operators.aggregate_extreme`): the first values of each group; cost |affected groups|, and the
  values of a group when deletions have used up those kept.
* distinct state (:mod:`.jobs.operators.aggregate_distinct`): accumulators over the values that appear or disappear;
  cost |changed values|.
* materialized input (:mod:`.jobs.operators.aggregate_input`): Spark's own aggregate over the group's input rows, before
  and after; cost the rows of the affected groups.

Each strategy contributes frames keyed by group; one last grouping brings them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators import (
    aggregate_distinct,
    aggregate_extreme,
    aggregate_input,
    aggregate_newest,
    aggregate_value,
)
from relstate_dagster.jobs.operators.aggregate_group import Affected, GroupFrames, Tables, group_exists, tables_by_role
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy
from relstate_dagster.jobs.plan.consolidated import has_comparable_results
from relstate_dagster.jobs.plan.nodes import Aggregate
from relstate_dagster.jobs.plan.state_tables import GROUP_ROWS
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.row_sums import same_value
from relstate_dagster.state_lib.sql_text import quoted

_CHANGED: Final = "_changed"


def change(ctx: EpochContext, node: Aggregate, child: RowSet | None) -> OperatorResult:
    """The change set of the groups: group columns, then the calls' results."""
    if child is None:
        if node.group or not ctx.state_is_new(node):
            return OperatorResult(None)
        child = ctx.row_sets.none(node.child.schema)
    tables, is_new = tables_by_role(ctx, node), ctx.state_is_new(node)
    changed_by_call: dict[int, RowSet] = {}
    affected = _fold(ctx, node, child, tables, changed_by_call)
    if affected is None:
        return OperatorResult(None)
    groups = aggregate_newest.checked(node, aggregate_value.versions(ctx, node, tables, affected))
    groups = aggregate_input.with_results(node, tables, groups)
    compared = _compared(node, tables, aggregate_extreme.with_new(ctx, node, tables, groups), is_new=is_new)
    stored = aggregate_value.stored_rows(node, tables)
    if node is ctx.fused_columns.carrier:
        fused_columns = {ctx.fused_columns.column_of(table.desc): f"struct({', '.join(row)})" for table, row in stored}
        return OperatorResult(ctx.row_sets.of(_emit(node, tables, compared, fused_columns, is_new=is_new)))
    shared = ctx.row_sets.shared(compared)
    if shared.is_empty:
        return OperatorResult(None)
    aggregate_extreme.write_counts(ctx, node, tables, shared, changed_by_call)
    refilled = aggregate_extreme.refilled(ctx, node, tables, shared, changed_by_call)
    if refilled is not None:
        shared = ctx.row_sets.shared(_compared(node, tables, refilled.drop(_CHANGED), is_new=is_new))
    late = aggregate_newest.late_rows(ctx, node, shared)
    for table, row in stored:
        table.write(shared.frame.selectExpr(*row).where(f"{WEIGHT} != 0"))
    changes = shared.derived(
        _emit(node, tables, shared.frame, is_new=is_new), {name: name for name in node.group}, where=_CHANGED
    )
    return OperatorResult(None if changes.is_empty else changes, late)


def _fold(
    ctx: EpochContext, node: Aggregate, child: RowSet, tables: Tables, changed_by_call: dict[int, RowSet]
) -> DataFrame | None:
    """Affected groups, with all strategies' measures of change and state.

    ``None`` if there are none.

    ``changed_by_call`` receives the changed counts of each extreme call.
    """
    # Value states fold the change once; every other table reads it again.
    delta = child.shared() if tables.counts or tables.input is not None or not tables.kept else child
    if delta.is_empty and not ctx.state_is_new(node):
        return None
    frames = GroupFrames(node.group)
    affected: Affected | None = None
    whole = aggregate_value.is_read_whole(ctx, node, tables)
    if whole:
        aggregate_value.fold_into_all(node, delta.frame, tables, frames)
    else:
        affected = aggregate_value.fold(ctx, node, delta.frame, tables, frames)
        if affected is None:
            return None
    extremes = {p: node.calls[p] for p in tables.counts if tables.strategy(p) is CallStrategy.EXTREME}
    if extremes and ctx.state_is_new(node):
        changed_by_call |= aggregate_extreme.fold_all(ctx, node, extremes, delta, tables, frames)
    else:
        changed_by_call |= {p: aggregate_extreme.fold(ctx, node, c, p, delta, tables, frames) for p, c in extremes.items()}
    for position in [p for p in tables.counts if p not in extremes]:
        aggregate_distinct.fold(ctx, node, node.calls[position], position, delta, tables, frames)
    if tables.input is not None and affected is not None:
        aggregate_input.fold(ctx, node, delta, tables, affected, frames)
    together = frames.together(single_partition=whole and ctx.row_sets.single_partition)
    return together.where(f"_d{GROUP_ROWS} IS NOT NULL") if whole else together


def _compared(node: Aggregate, tables: Tables, groups: DataFrame, *, is_new: bool) -> DataFrame:
    """Add whether the old and the new row of a group differ.

    Columns that nothing reads any more are left out.
    """
    unread = aggregate_value.unread(node, tables, is_new=is_new)
    return groups.selectExpr("*", f"{_differs(node, tables, is_new=is_new)} AS {_CHANGED}").drop(*unread)


def _differs(node: Aggregate, tables: Tables, *, is_new: bool) -> str:
    lived, lives_on = group_exists(node, "old"), group_exists(node, "new")
    if is_new:
        return lives_on
    same = [lived, lives_on]
    if has_comparable_results(node):
        old, new = (
            [aggregate_value.result(node, tables, n, version) for n in range(len(node.calls))] for version in ("old", "new")
        )
        same += [same_value(was, now, c.output.data_type) for was, now, c in zip(old, new, node.calls, strict=True)]
    else:
        same.append("false")  # an update that changes nothing is only wasteful
    return f"({lived} OR {lives_on}) AND NOT ({' AND '.join(same)})"


def _emit(
    node: Aggregate, tables: Tables, groups: DataFrame, fused_columns: Mapping[str, str] | None = None, *, is_new: bool
) -> DataFrame:
    """The old and the new row of the groups, where they differ.

    Riders (struct columns, as SQL over the groups) go with the new row, which is there with weight 0 too; with the old one
    of a group that is gone. So nothing is computed of a group that has no rows, which the query does not compute either.
    """
    names = [quoted(call.output.name) for call in node.calls]
    fused_columns = fused_columns or {}
    lives_on = group_exists(node, "new")

    def version(name: str, weight: int, carries: str) -> str:
        values = [f"{aggregate_value.result(node, tables, n, name)} AS {column}" for n, column in enumerate(names)]
        values.append(f"IF({_CHANGED} AND {group_exists(node, name)}, {weight}L, 0L) AS {WEIGHT}")
        values += [f"IF({carries}, {row}, NULL) AS {column}" for column, row in fused_columns.items()]
        return f"struct({', '.join(values)})"

    versions = [] if is_new else [version("old", -1, f"NOT ({lives_on})")]
    versions.append(version("new", 1, lives_on))
    emitted = groups.selectExpr(*columns_of(node.group), f"inline(array({', '.join(versions)}))")
    return emitted.where(" OR ".join([f"{WEIGHT} != 0", *(f"{column}.{WEIGHT} != 0" for column in fused_columns)]))
