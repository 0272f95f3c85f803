"""Sends every plan node to exactly one operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from relstate_dagster.jobs.operators import (
    aggregate,
    arrange,
    closed_groups,
    expired,
    join,
    leaves,
    linear,
    materialize,
    outer_join,
    recompute,
    temporal,
    top_n,
    window,
)
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult, PlanResult
from relstate_dagster.jobs.operators.filling import PartialFill
from relstate_dagster.jobs.operators.old_rows import asked_for_by_joins
from relstate_dagster.jobs.operators.one_pass import FusedColumns, fusion_root
from relstate_dagster.jobs.operators.plain_rows import plain_rows
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan import nodes
from relstate_dagster.jobs.plan.nodes import Join, Materialize, PlanNode
from relstate_dagster.state_lib.errors import PlanError

Operator = Callable[..., OperatorResult]

_OPERATORS: dict[type[PlanNode], Operator] = {
    nodes.Scan: leaves.scan,
    nodes.Values: leaves.values,
    nodes.FullQuery: leaves.full_query,
    nodes.Filter: linear.filtered,
    nodes.TemporalFilter: temporal.change,
    nodes.TemporalProject: temporal.change,
    nodes.Project: linear.projected,
    nodes.UnionAll: linear.union,
    nodes.Arrange: arrange.change,
    nodes.Expand: linear.change,
    nodes.Generate: linear.change,
    nodes.Aggregate: aggregate.change,
    nodes.Window: window.change,
    nodes.TopN: top_n.change,
    nodes.Materialize: materialize.change,
}


def operator_of(node: PlanNode) -> Operator:
    """The operator that maintains a node."""
    if isinstance(node, Join):
        return join.change if node.join_type == "inner" else outer_join.change
    operator = _OPERATORS.get(type(node))
    if operator is None:
        raise PlanError(f"{type(node).__name__} has no operator")
    return operator


def compute_changes(ctx: EpochContext, root: Materialize) -> PlanResult:
    """Run the operators bottom-up; equal nodes run once.

    Where the state of some nodes is new, these are run on all rows (:mod:`.jobs.operators.filling`).
    """
    uses = _use_counts(root)
    is_partly_new = ctx.new_state.is_some
    # What the view gets is changed on its way there where some of it may have expired, or cannot be computed any more: nothing
    # can ride along. Where a part of the plan is filled, not all of it goes the same way.
    changes_on_its_way = ctx.may_have_expired or ctx.leaves_out_old_errors or is_partly_new
    ctx = replace(
        ctx,
        fused_columns=FusedColumns(None if changes_on_its_way else fusion_root(root, uses)),
        asked_for_by_joins=asked_for_by_joins(root) if ctx.leaves_out_old_errors else frozenset(),
    )
    fill = PartialFill(ctx, root, operator_of, uses) if is_partly_new else None
    late_rows: list[int] = []

    def change_of(node: PlanNode) -> RowSet | None:
        return ctx.steps.once(node, partial(compute, node))

    def compute(node: PlanNode) -> RowSet | None:
        if fill is not None and fill.fills(node):
            ctx.changes[node] = fill.change(node, change_of)
            return ctx.changes[node]
        inputs = ctx.in_parallel(*(partial(change_of, child) for child in node.children))
        if ctx.may_have_expired:
            inputs = expired.reconcile_expired(ctx, node, inputs)
        elif ctx.strict and not ctx.state_is_new(node):
            expired.check_agrees(ctx, node, inputs)
        is_closed = isinstance(node, nodes.Aggregate) and node in ctx.closed
        operator: Operator = closed_groups.change if is_closed else operator_of(node)
        found = operator(ctx, node, *inputs)
        late_rows.append(found.late_rows)
        changes = found.changes
        if changes is not None and uses.get(node, 0) > 1 and not ctx.is_read_again(node):
            changes = changes.shared()
            changes = None if changes.is_empty else changes
        ctx.changes[node] = changes
        return changes

    changes: RowSet | None
    with ctx.steps:
        if ctx.recomputes is not None:
            filled = None if fill is None else fill.rows_now(root.child)
            now = plain_rows(ctx, root.child) if fill is None else None if filled is None else filled.frame
            ctx.changes[root] = changes = recompute.change(ctx, root, now)
        elif fill is None:
            changes = change_of(root)
        else:
            changes = fill.rows_now(root) if fill.fills(root) else change_of(root)
            # State below new nodes goes on as well, though they do not ask for its changes.
            ctx.in_parallel(
                *(partial(change_of, node) for node, tables in ctx.tables.items() if tables and not fill.fills(node))
            )
    return PlanResult(changes, sum(late_rows))


def _use_counts(root: PlanNode) -> dict[PlanNode, int]:
    counts: dict[PlanNode, int] = {}
    for node in nodes.walk(root):
        for child in node.children:
            counts[child] = counts.get(child, 0) + 1
    return counts
