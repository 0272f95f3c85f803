"""Epochs of a view that can still be read, also of earlier generations.

The catalog knows the last epochs of the view's generation. Epochs of earlier generations are in the log of the published
table, unless the table was created again. Each of its commits names its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.state_lib.errors import EpochError


@dataclass(frozen=True, slots=True)
class ReadableEpoch:
    """An epoch of a view, with its published version and the generation that made it."""

    epoch: int
    version: int
    generation: str


def readable_epochs(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> list[ReadableEpoch]:
    """Epochs of a view that the catalog or the table's log remembers, oldest first."""
    found: dict[int, ReadableEpoch] = {}
    last = view.last_epoch or 0
    for version, commit in warehouse.target(view.name).commits():
        if commit.epoch <= last:
            found[commit.epoch] = ReadableEpoch(commit.epoch, version, commit.generation)
    for epoch in view.epochs:
        versions = state.epochs[epoch].versions.get(view.name) if epoch in state.epochs else None
        if versions is not None and versions.view_version is not None:
            found[epoch] = ReadableEpoch(epoch, versions.view_version, view.generation)
    return [found[epoch] for epoch in sorted(found)]


def two_epochs(
    warehouse: Warehouse, view: ViewEntry, known: list[ReadableEpoch], since: int | None, until: int | None
) -> tuple[ReadableEpoch, ReadableEpoch]:
    """Two readable epochs of a view; by default the last one and its predecessor.

    Raises
    ------
    EpochError : the view has not reached one of them, or its rows are gone; names those that are there.
    """
    last = _picked(warehouse, view, known, until)
    if since is None:
        before = [r for r in known if r.epoch < last.epoch]
        if not before:
            raise EpochError(
                f"view {view.name} has no epoch before {last.epoch} to compare with; {_there(warehouse, view, known)}"
            )
        since = before[-1].epoch
    return _picked(warehouse, view, known, since), last


def _picked(warehouse: Warehouse, view: ViewEntry, known: list[ReadableEpoch], epoch: int | None) -> ReadableEpoch:
    if not known:
        raise EpochError(f"view {view.name} has not been built yet: relstate run")
    if epoch is None:
        epoch = known[-1].epoch
    found = next((r for r in known if r.epoch == epoch), None)
    if found is None:
        raise EpochError(
            f"view {view.name} has not reached epoch {epoch}, or that is forgotten; {_there(warehouse, view, known)}"
        )
    problem = warehouse.target(view.name).why_unreadable(found.version)
    if problem is not None:
        raise EpochError(f"view {view.name}: the rows of epoch {epoch} are gone: {problem}; {_there(warehouse, view, known)}")
    return found


def _there(warehouse: Warehouse, view: ViewEntry, known: list[ReadableEpoch]) -> str:
    readable = [r for r in known if warehouse.target(view.name).why_unreadable(r.version) is None]
    return f"there are {', '.join(str(r.epoch) for r in readable) or 'none'}"
