"""Versions of published tables that belong together: what a reader of several views opens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from relstate_dagster.jobs.catalog.relations import topological
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.state_lib.errors import DeclarationError, EpochError


@dataclass(frozen=True, slots=True)
class ViewSnapshot:
    """A view as of an epoch: its own newest epoch and Delta version.

    The version is of the table at ``path``.
    """

    view: str
    epoch: int
    version: int
    path: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Views as of an epoch.

    Parameters
    ----------
    views : by name.
    mixed : of each source that they have not all read at the same version, the version that each view has read.
    """

    views: Mapping[str, ViewSnapshot]
    mixed: Mapping[str, Mapping[str, int]]


def snapshot(warehouse: Warehouse, views: Iterable[str] | None = None, epoch: int | None = None) -> Snapshot:
    """Delta versions of views as of an epoch.

    By default of all views, and of the newest epoch.

    Views that were brought up to date by one run are at one epoch. Where they were by several, ``mixed`` says which of them
    have read other versions of a source than the rest.

    Raises
    ------
    DeclarationError : there is no such view.
    EpochError : a view has not been built by then, or the catalog does not remember.
    """
    state = warehouse.read()
    names = topological(state) if views is None else [state.called(view) for view in views]
    unknown = [name for name in names if name not in state.views]
    if unknown:
        raise DeclarationError(f"no materialized view named {', '.join(unknown)}; there are {', '.join(sorted(state.views))}")
    found, read = dict[str, ViewSnapshot](), dict[str, dict[str, int]]()
    for name in names:
        at = epoch_of(state, name, epoch)
        version = state.epochs[at].versions[name].view_version
        assert version is not None
        found[name] = ViewSnapshot(name, at, version, warehouse.target(name).path)
        for source, pinned in _pinned(state, name, at).items():
            read.setdefault(source, {})[name] = pinned
    return Snapshot(found, {source: by_view for source, by_view in read.items() if len(set(by_view.values())) > 1})


def epoch_of(state: CatalogState, view: str, until: int | None) -> int:
    """The newest epoch of a view, up to another one."""
    reached = [e for e in state.views[view].epochs if until is None or e <= until]
    if not reached:
        known = ", ".join(map(str, state.views[view].epochs)) or "none: relstate run"
        when = "has not been built yet" if until is None else f"has no epoch up to {until} that the catalog remembers"
        raise EpochError(f"view {view} {when} (there are {known})")
    return reached[-1]


def _pinned(state: CatalogState, view: str, epoch: int) -> dict[str, int]:
    """Versions of sources that a view, and views below it, have read at an epoch."""
    found: dict[str, int] = {}
    for name in state.views[view].reads:
        if name in state.views:
            found.update(_pinned(state, name, epoch_of(state, name, epoch)))
        elif name in state.epochs[epoch].pins:
            found[name] = state.epochs[epoch].pins[name].version
    return found
