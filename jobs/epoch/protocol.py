"""The protocol of epochs, as transitions from one state of the catalog to the next. Pure: nothing is read or written.

::

    to_rebuild ──► begun ──► (state commit, publish: once for each view) ──► completed
                     │                                                          ▲
                     ├── killed, some views committed ── settled by the next run┘  those that had committed
                     └── killed, none committed ──────► forgotten

* Each transition becomes true by one commit of the catalog, made by compare and swap on the state that it started from.
* An epoch that has begun is the only one that may be under way. A later run settles it first: views whose state commit is
  there are published and reach it; the others stay where they were, and take part in the next epoch.
* A view that cannot be computed is left behind with its :class:`~jobs.catalog.entries.Problem`. It keeps its last epoch, its
  rows and its state; the next run tries again from there. Views over it wait.
* A view that is built again has an entry beside the one that readers see, with a generation and so a folder of its own, and
  takes its place when the epoch that built it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.catalog.entries import CatalogState, EpochEntry, Problem, ViewEntry, ViewVersions
from state_lib.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Reached:
    """A view that has come to an epoch: its entry, vnode counts and costs included, and what it has come to."""

    view: ViewEntry
    versions: ViewVersions


def with_dependents(state: CatalogState, names: Iterable[str]) -> list[str]:
    """Views, and all views over them, in no particular order.

    Raises
    ------
    DeclarationError : there is no such view.
    """
    pending, found = list(names), dict[str, None]()
    while pending:
        name = pending.pop()
        if name not in state.views:
            known = ", ".join(sorted(state.views)) or "none"
            raise DeclarationError(f"no materialized view named {name} to rebuild; there are {known}")
        if name not in found:
            found[name] = None
            pending += state.working.dependents(name)
    return list(found)


def to_rebuild(state: CatalogState, names: Iterable[str]) -> CatalogState:
    """Views, and the views over them, are to be planned and built again; readers see them as they are until then."""
    for name in with_dependents(state, names):
        view = state.rebuilds.get(name, state.views[name])
        state = state.with_rebuild(replace(view.restarted(), planned_on=""))
    return state


def begun(state: CatalogState, epoch: EpochEntry) -> CatalogState:
    """An epoch has begun: its pins, instant and views are settled. What is to be built in it has its plan by now."""
    return state.with_epoch(epoch)


def completed(
    state: CatalogState, epoch: EpochEntry, reached: Mapping[str, Reached], problems: Mapping[str, Problem]
) -> CatalogState:
    """An epoch is complete: some views have reached it, the others are left behind.

    An epoch that no view has reached is forgotten.
    """
    views = {**state.views, **{name: done.view for name, done in reached.items()}}
    rebuilds = {n: v for n, v in state.rebuilds.items() if n not in reached and n not in epoch.anew}
    state = left_behind(replace(state, views=views, rebuilds=rebuilds), problems)
    there = [n for n, v in views.items() if epoch.epoch in v.epochs]
    if not there:
        return forgotten(state, epoch)
    versions = {**epoch.versions, **{name: done.versions for name, done in reached.items()}}
    versions = {n: v for n, v in versions.items() if n in there}
    return state.with_epoch(replace(epoch, versions=versions, views=tuple(there), complete=True))


def forgotten(state: CatalogState, epoch: EpochEntry) -> CatalogState:
    """An epoch to which no view has come is not there any more. Its number is not used again."""
    epochs = {n: e for n, e in state.epochs.items() if n != epoch.epoch}
    rebuilds = {n: v for n, v in state.rebuilds.items() if n not in epoch.anew}
    return replace(state, epochs=epochs, rebuilds=rebuilds, next_epoch=max(state.next_epoch, epoch.epoch + 1))


def left_behind(state: CatalogState, problems: Mapping[str, Problem]) -> CatalogState:
    """Views could not be computed, or wait for one that could not."""
    for name, problem in problems.items():
        state = state.with_problem(name, problem)
    return state


def solved(state: CatalogState, names: Iterable[str]) -> CatalogState:
    """Views can be computed again, and have nothing to compute."""
    for name in names:
        if state.views[name].problem is not None:
            state = state.with_problem(name, None)
    return state


def waiting(state: CatalogState, names: Sequence[str], left: Iterable[str]) -> dict[str, str]:
    """Of some views, upstream first, those over views that are left behind; each with the one that it waits for."""
    behind, found = set(left), dict[str, str]()
    for name in names:
        upstream = next((up for up in state.views[name].reads if up in behind), None)
        if upstream is not None and name not in behind:
            found[name] = upstream
            behind.add(name)
    return found
