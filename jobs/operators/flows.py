"""Rows that each plan node gave in an epoch, known without a job."""

from __future__ import annotations

from collections.abc import Mapping

from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.plan.epoch_rows import Flow
from relstate_dagster.jobs.plan.nodes import Materialize, PlanNode, Project, Scan, walk


def held_flows(ctx: EpochContext, root: PlanNode) -> dict[PlanNode, Flow]:
    """Rows of change sets on the driver, by node; equal rows count each."""
    found = {}
    for node in walk(root):
        if node not in ctx.changes:
            continue
        changes = ctx.changes[node]
        flow = (0, 0) if changes is None else changes.flow
        if flow is not None:
            found[node] = flow
    return found


def completed(
    held: Mapping[PlanNode, Flow], root: Materialize, rows_in: Mapping[str, Flow], rows_out: Flow | None
) -> dict[PlanNode, Flow]:
    """Flows with what follows from others.

    Sources by what was read, projections by their inputs or readers.

    Parameters
    ----------
    rows_in : of each relation that was read.
    rows_out : rows that entered and left the view; ``None`` where they are not published yet.
    """
    found, nodes = dict(held), list(walk(root))
    for node in nodes:
        if isinstance(node, Scan) and node.relation in rows_in:
            found.setdefault(node, rows_in[node.relation])
        elif isinstance(node, Project) and node.child in found:
            found.setdefault(node, found[node.child])
    if rows_out is not None:
        for node in (root, root.child):
            found.setdefault(node, rows_out)
    for node in reversed(nodes):
        if isinstance(node, Project) and node in found:
            found.setdefault(node.child, found[node])
    return found
