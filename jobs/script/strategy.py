"""A view explained: whether it is incremental, and why not; its plan; and what its next epoch would do."""

from __future__ import annotations

from collections.abc import Sequence

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.declare.state_ttl import STATE_TTL
from relstate_dagster.jobs.planner.explain import explain_plan


def strategy_line(view: ViewEntry) -> str:
    """``view v: incremental`` or ``view v: full, because …``, and whether its state expires."""
    because = f", because {view.reason}" if view.reason else ""
    ttl = view.properties.get(STATE_TTL)
    expires = "" if ttl is None else f"; join and aggregate state expires after {ttl}, so that results are not exact"
    return f"view {view.name}: {view.strategy}{because}{expires}"


def explained_view(view: ViewEntry, stages: Sequence[str]) -> str:
    """How a view is maintained: strategy, plan, state tables, and the stages of its next epoch."""
    plan = explain_plan(view.plan, view.tables)
    return "\n".join([strategy_line(view), plan, "", "next epoch:", *(f"  {line}" for line in stages)])
