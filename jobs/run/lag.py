"""Lag of views behind what they read, by the catalog and logs alone, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.run.freshness import NewestSources, views_behind


@dataclass(frozen=True, slots=True)
class ViewLag:
    """Lag of a view behind what it reads.

    Parameters
    ----------
    epoch : the last one that it has reached; ``None`` before the first.
    age_seconds : since the instant of that epoch.
    unread : commits of each source, and epochs of each view below, that it has not read. Relations that cannot be looked at are
        not in it.
    is_behind : the next run would change it.
    is_left_behind : the last run that tried could not compute it.
    """

    view: str
    epoch: int | None
    age_seconds: float | None
    unread: Mapping[str, int]
    is_behind: bool
    is_left_behind: bool


def view_lags(warehouse: Warehouse, now: datetime) -> list[ViewLag]:
    """The lag of every view of a warehouse."""
    state = warehouse.read()
    newest = NewestSources.of(warehouse, state, {name for view in state.views.values() for name in view.reads})
    behind = views_behind(warehouse, state.views, state, newest)
    found = []
    for view in state.views.values():
        last = None if view.last_epoch is None else state.epochs.get(view.last_epoch)
        age = None if last is None or last.instant is None else max(0.0, (now - last.instant).total_seconds())
        unread = _unread(state, view, newest)
        found.append(ViewLag(view.name, view.last_epoch, age, unread, view.name in behind, view.problem is not None))
    return found


def _unread(state: CatalogState, view: ViewEntry, newest: NewestSources) -> dict[str, int]:
    last = state.epochs.get(view.last_epoch or 0)
    read = {} if last is None else last.pins
    found = {}
    for name in view.reads:
        if name in state.views:
            found[name] = sum(epoch > (view.last_epoch or 0) for epoch in state.views[name].epochs)
        elif name in newest.pins:
            # A table that was made again under its name counts from its first commit.
            pin, since = newest.pins[name], read.get(name)
            is_same_table = since is not None and since.table_uuid == pin.table_uuid
            found[name] = max(0, pin.version - since.version) if since is not None and is_same_table else pin.version + 1
    return found
