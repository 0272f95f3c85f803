"""Views that an epoch may change, and versions of the others."""

from __future__ import annotations

from collections.abc import Sequence

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.relations import with_upstream_views
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.declare.changelogs import is_changelog_view
from relstate_dagster.jobs.plan.nodes import depends_on_time


def outside_upstream(state: CatalogState, view: str, selected: Sequence[str]) -> list[str]:
    """The views below a view that are not among some."""
    return [n for n in state.views[view].reads if n in state.views and n not in selected]


def sources_of_new(state: CatalogState, selected: Sequence[str]) -> list[str]:
    """Upstream views that run in the epoch which builds a new view.

    They are views of the newest rows of changes. A new view over one of them and
    over others brings all of these along: they are at one epoch.
    """
    found: list[str] = []
    for name in selected:
        views = [read for read in state.views[name].reads if read in state.views]
        is_new = state.views[name].last_epoch is None
        if is_new and any(is_changelog_view(state.views[read].properties) for read in views):
            found += with_upstream_views(state, name)
    return found


def versions_seen(state: CatalogState, epoch: EpochEntry) -> dict[str, ViewVersions]:
    """Versions of views that do not take part in an epoch, or have reached it."""
    found = dict(epoch.versions)
    for name in state.views:
        known = state.versions_at(name)
        if known is not None and name not in epoch.views:
            found.setdefault(name, known)
    return found


def views_with_new_input(state: CatalogState, epoch: EpochEntry) -> list[str]:
    """Views of an epoch that may change in it, and views over those."""
    found = [v for v in epoch.views if _may_change(state, state.views[v], epoch)]
    for view in epoch.views:
        if view not in found and any(up in found for up in state.views[view].reads):
            found.append(view)
    return found


def _may_change(state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> bool:
    """Whether a view may differ from its last epoch.

    It has none, time or a source moved, or an upstream view did.
    """
    if view.last_epoch is None:
        return True
    if depends_on_time(view.plan):
        return True
    since = state.epochs[view.last_epoch]
    for name in view.reads:
        if name in state.views:
            last = state.views[name].last_epoch
            if last is not None and last > view.last_epoch:
                return True
        elif name not in since.pins or not since.pins[name].is_same(epoch.pins[name]):
            return True
    return False
