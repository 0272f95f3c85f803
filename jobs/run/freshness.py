"""Views that are behind their sources, by the logs alone and without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.relations import topological
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.plan.plan_version import PLAN_VERSION
from relstate_dagster.jobs.sources.folder_files import FolderFiles
from relstate_dagster.jobs.sources.protocol import resolve_pins
from relstate_dagster.state_lib.errors import RelstateError


def views_behind(
    warehouse: Warehouse,
    names: Iterable[str],
    state: CatalogState | None = None,
    until_version: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, str]:
    """Views that a run would change, each with a stable reason.

    A view that was left behind is not behind again until one of its sources has moved on: the same run would fail again. A
    source that cannot be looked at has not moved. One that is a folder has moved when there are new files in it.

    Parameters
    ----------
    state : of the catalog, read just now; the newest without one.
    until_version : the versions that the run reads some sources up to at most.
    """
    state, wanted = state or warehouse.read(), set(names)
    found = dict.fromkeys(sorted(wanted - set(state.views)), "is not built yet")
    read = {name for view in wanted & set(state.views) for name in state.views[view].reads if name in state.sources}
    pins, _ = resolve_pins({name: warehouse.source(state.sources[name]) for name in read}, state.last_pins, until_version)
    newest = {name: pin.identity for name, pin in pins.items()}
    unread = new_files(state, read - set(until_version))
    newest |= {name: f"{newest.get(name, name)} and {files}" for name, files in unread.items()}
    for name in topological(state.working):
        reason = _behind(state, state.views[name], newest, found) if name in wanted else None
        if reason is not None:
            found[name] = reason
    return found


def new_files(state: CatalogState, names: Iterable[str]) -> dict[str, str]:
    """New files of sources that are folders, or why they cannot be listed."""
    found = {}
    for name in names:
        entry = state.sources.get(name)
        if entry is None or entry.folder is None:
            continue
        try:
            new = FolderFiles(name, entry.folder, entry.path).new()
        except (RelstateError, OSError) as error:
            found[name] = str(error)
        else:
            if new:
                found[name] = new.identity
    return found


def _behind(state: CatalogState, view: ViewEntry, newest: dict[str, str], behind: dict[str, str]) -> str | None:
    if view.problem is not None and view.problem.pins:
        pinned = dict(view.problem.pins)
    elif view.last_epoch is None or view.name in state.rebuilds or view.plan_version != PLAN_VERSION:
        return _why_planned(view)
    else:
        pinned = {name: pin.identity for name, pin in state.epochs[view.last_epoch].pins.items()}
    moved = [name for name in view.reads if name in newest and pinned.get(name) != newest[name]]
    if moved:
        return f"has not read {', '.join(f'{name} {newest[name]}' for name in moved)}"
    for name in view.reads:
        if name in behind:
            return f"reads {name}, which {behind[name]}"
        reached = state.views[name].last_epoch if name in state.views else None
        if view.problem is None and (reached or 0) > (view.last_epoch or 0):
            return f"has not read epoch {reached} of {name}"
    return None


def _why_planned(view: ViewEntry) -> str:
    """Reason to plan or build a view, independent of its sources."""
    if view.last_epoch is None:
        return "is not built yet"
    return "is to be rebuilt" if view.plan_version == PLAN_VERSION else "was planned by another version of relstate"
