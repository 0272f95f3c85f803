"""A view explained: its strategy with the reason, its plan, and its next epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relstate_dagster.jobs.catalog.entries import SourceEntry, ViewEntry
from relstate_dagster.jobs.declare.state_ttl import STATE_TTL
from relstate_dagster.jobs.declare.watermarks import WATERMARK
from relstate_dagster.jobs.plan.closing import closings
from relstate_dagster.jobs.plan.explain import explain_plan


def strategy_line(view: ViewEntry) -> str:
    """``view v: incremental`` or ``view v: full, because …``, and whether its state expires."""
    because = f", because {view.reason}" if view.reason else ""
    ttl = view.properties.get(STATE_TTL)
    expires = "" if ttl is None else f"; join and aggregate state expires after {ttl}, so that results are not exact"
    return f"view {view.name}: {view.strategy}{because}{expires}"


def explained_view(view: ViewEntry, stages: Sequence[str], sources: Mapping[str, SourceEntry]) -> str:
    """Strategy, plan, state tables and expiry of a view, and steps of its next epoch."""
    plan = explain_plan(view.plan, view.node_tables)
    closed = _closed_lines(view, sources)
    return "\n".join([strategy_line(view), plan, *closed, "", "next epoch:", *(f"  {line}" for line in stages)])


def _closed_lines(view: ViewEntry, sources: Mapping[str, SourceEntry]) -> list[str]:
    declared = {name: sources[name].watermarked for name in view.reads if name in sources}
    columns = {name: [watermark.column] for name, watermark in declared.items() if watermark is not None}
    lines = []
    for node, ways in closings(view.plan, columns).items():
        by = ways[0].relation
        lines.append(f"  Aggregate by ({', '.join(node.group)}): {by} has '{WATERMARK}' = '{sources[by].watermark}'")
    return ["", "groups leave the state once they are closed:", *lines] if lines else []
