"""The first line of an explain: whether a view is incremental, and why not."""

from __future__ import annotations

from jobs.catalog.entries import ViewEntry


def strategy_line(view: ViewEntry) -> str:
    """``view v: incremental`` or ``view v: full, because …``."""
    because = f", because {view.reason}" if view.reason else ""
    return f"view {view.name}: {view.strategy}{because}"
