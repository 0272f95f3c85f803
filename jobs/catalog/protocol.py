"""The protocol of epochs as pure transitions of the catalog's state.

::

    to_rebuild ──► begun ──► (state commit, publish: once for each view) ──► completed
                     │                                                          ▲
                     └── its run died ──► taken_over by the next run ───────────┘
                                          what was committed is published, the rest is for the next epoch

* Each transition becomes true by one commit of the catalog, made by compare and swap on the newest state.
* To begin an epoch is to claim its views, to complete it is to give them back. Epochs of disjoint views are under way at the
  same time; no view is ever in two. A view joins a new epoch together with all views that it reads, or follows to one that
  they have reached.
* Who has to wait is noted as well, and has its turn before those that come later: a process that runs again and again lets
  others in between.
* A run that was taken for dead cannot complete its epoch any more: its claim is gone. What it still commits to a table is
  taken back by the next run (:mod:`.jobs.targets.chain`).
* A view that cannot be computed is left behind with its :class:`~.jobs.catalog.entries.Problem`. It keeps its last epoch, its
  rows and its state; the next run tries again from there. Views over it wait.
* A large view is built in slices, each an epoch that only it takes part in. Readers do not see them: the view has reached
  no epoch until it is published whole. A run that dies loses one slice; the next one goes on from there.
* A view that is built again has a second entry beside the one that readers see, with a generation and so a folder of its
  own. It replaces the first when the epoch that built it is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from relstate_dagster.jobs.catalog.entries import Claim, EpochEntry, Problem, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.state import CatalogState, ConcurrentCatalogChange
from relstate_dagster.state_lib.errors import DeclarationError, EpochError

#: The number of an epoch that has not begun.
UNNUMBERED: Final = 0


@dataclass(frozen=True, slots=True)
class ViewProgress:
    """A view's new catalog entry and table versions after an epoch."""

    view: ViewEntry
    versions: ViewVersions


def with_dependents(state: CatalogState, names: Iterable[str]) -> list[str]:
    """Views, and all views over them, in no particular order.

    Raises
    ------
    DeclarationError : there is no such view.
    """
    pending, found = [state.called(name) for name in names], dict[str, None]()
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
    """Mark views, and views over them, to be rebuilt.

    Readers see them unchanged until then.
    """
    for name in with_dependents(state, names):
        view = state.rebuilds.get(name, state.views[name])
        state = state.with_rebuild(replace(view.restarted(), planned_on=""))
    return state


class Claimed(ConcurrentCatalogChange):
    """Another run has views that this one wants.

    It began first, or it died and has to be settled.
    """


#: The error of a run that was taken for dead.
LOST: Final = (
    "another run took this one for dead and repaired its epoch, so the results of this run are not used. Run again. If the "
    "machine was not asleep, the lease is too short: set RELSTATE_LEASE_SECONDS"
)


class ClaimLost(EpochError):
    """A run was taken for dead, and another one has settled its epoch."""


def conflicting_claims(state: CatalogState, own: str, views: Collection[str]) -> list[Claim]:
    """Claims that block a holder: active ones, and earlier waiting ones."""
    wanted, mine = set(views), state.claims.get(own)
    others = [claim for claim in state.claims.values() if claim.id != own and not wanted.isdisjoint(claim.views)]
    return [claim for claim in others if claim.ticket is None or _came_before(claim.ticket, mine)]


def _came_before(ticket: int, mine: Claim | None) -> bool:
    """Whether a waiting claim came before another claim."""
    return mine is None or (mine.ticket is not None and ticket < mine.ticket)


def claimed(state: CatalogState, claim: Claim) -> CatalogState:
    """Views are a run's own from here on.

    Raises
    ------
    Claimed : another run has one of them.
    """
    check_unclaimed(state, claim.id, claim.views)
    return state.with_claim(claim)


def check_unclaimed(state: CatalogState, own: str, views: Collection[str]) -> None:
    """Raise Claimed where another holder, living or dead, has one of some views."""
    for other in conflicting_claims(state, own, views):
        raise Claimed(f"{other} {', '.join(sorted({*other.views} & {*views}))}, was faster; nothing was written")


def released(state: CatalogState, holder: str) -> CatalogState:
    """Give back a holder's claim."""
    return state.without_claim(holder)


def taken_over(state: CatalogState, dead: Claim, claim: Claim) -> CatalogState:
    """Take over the claim of a dead run, with its epoch, to settle it.

    Raises
    ------
    Claimed : it has come back to life, or another run was faster.
    """
    if state.claims.get(dead.id) != dead:
        raise Claimed(f"the epoch that {dead} left is being settled by another run; nothing was written")
    return state.without_claim(dead.id).with_claim(replace(claim, views=dead.views, epoch=dead.epoch))


def epochs_numbered(state: CatalogState, number: int) -> list[EpochEntry]:
    """All entries of an epoch: the complete one, and those in progress."""
    found = [claim.epoch for claim in state.claims.values() if claim.epoch is not None] + [*state.epochs.values()]
    return [epoch for epoch in found if epoch.epoch == number]


def begun(state: CatalogState, claim: Claim) -> CatalogState:
    """Begin an epoch: fix its pins, instant and views, and claim the views.

    What is to be built in it has its plan by now. An epoch that has no number yet is given the next one, which the claim in
    the new state has; others are epochs that views follow to.

    Raises
    ------
    Claimed : another run has one of the views, or has pinned a source otherwise for an epoch that both follow to.
    """
    assert claim.epoch is not None
    epoch = claim.epoch
    for other in epochs_numbered(state, epoch.epoch):
        pinned = [name for name, pin in epoch.pins.items() if other.pins.get(name, pin) != pin]
        if pinned:
            raise Claimed(f"another run has pinned {', '.join(pinned)} at the same time; nothing was written")
    if epoch.epoch == UNNUMBERED:
        epoch = replace(epoch, epoch=state.next_epoch)
        state = replace(state, next_epoch=epoch.epoch + 1)
    return claimed(state, replace(claim, epoch=epoch))


def completed(
    state: CatalogState, holder: str, reached: Mapping[str, ViewProgress], problems: Mapping[str, Problem]
) -> CatalogState:
    """Complete an epoch: record views that reached it, and errors of the others.

    No view is claimed any more.

    An epoch that no view has reached is forgotten: its number is not used again. So is that of a slice, but for what the view
    that is built in slices remembers of it.

    Raises
    ------
    ClaimLost : the run was taken for dead, and another one has settled the epoch.
    """
    claim = state.claims.get(holder)
    if claim is None or claim.epoch is None:
        raise ClaimLost(LOST)
    epoch = claim.epoch
    if epoch.slice is not None:
        state = state.without_claim(holder)
        for done in reached.values():
            state = state.with_rebuild(done.view)
        return left_behind(state, problems)
    views = {**state.views, **{name: done.view for name, done in reached.items()}}
    rebuilds = {n: v for n, v in state.rebuilds.items() if n not in reached}
    state = replace(state.without_claim(holder), views=views, rebuilds=rebuilds)
    state = left_behind(state, problems)
    known = state.epochs.get(epoch.epoch, epoch)
    versions = {**known.versions, **{name: done.versions for name, done in reached.items()}}
    versions = {n: v for n, v in versions.items() if n in views and epoch.epoch in views[n].epochs}
    if not versions:
        return replace(state, epochs={n: e for n, e in state.epochs.items() if n != epoch.epoch})
    pins = {**known.pins, **epoch.pins}
    return state.with_epoch(replace(known, pins=pins, versions=versions, views=tuple(versions)))


def left_behind(state: CatalogState, problems: Mapping[str, Problem]) -> CatalogState:
    """Views could not be computed, or wait for one that could not."""
    for name, problem in problems.items():
        if name in state.views:
            state = state.with_problem(name, problem)
    return state


def clear_errors(state: CatalogState, names: Iterable[str]) -> CatalogState:
    """Views can be computed again, and have nothing to compute."""
    for name in names:
        if name in state.views and state.views[name].problem is not None:
            state = state.with_problem(name, None)
    return state


def blocked_by(state: CatalogState, names: Sequence[str], left: Iterable[str]) -> dict[str, str]:
    """Views over failed views, each with the one that it waits for.

    In the order in which they are given, upstream first.
    """
    behind, found = set(left), dict[str, str]()
    for name in names:
        upstream = next((up for up in state.views[name].reads if up in behind), None)
        if upstream is not None and name not in behind:
            found[name] = upstream
            behind.add(name)
    return found
