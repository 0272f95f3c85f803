"""The transitions of epochs, without Spark: what the catalog says after each, whichever views failed on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import permutations, product
from typing import Any

import pytest

from relstate_dagster.jobs.catalog.entries import Claim, EpochEntry, Problem, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.plans import Planned
from relstate_dagster.jobs.catalog.protocol import (
    UNNUMBERED,
    Claimed,
    ClaimLost,
    ViewProgress,
    begun,
    blocked_by,
    clear_errors,
    completed,
    conflicting_claims,
    left_behind,
    taken_over,
    to_rebuild,
)
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.state_lib.errors import DeclarationError

_READS = {"a": (), "b": (), "over_a": ("a",), "over_both": ("a", "b"), "top": ("over_both",)}
_ORDER = list(_READS)


_PLANNED = Planned("digest", lambda _: pytest.fail("no transition looks at a plan"))


def _view(name: str, *epochs: int) -> ViewEntry:
    return ViewEntry(name, f"SELECT {name}", "incremental", None, _PLANNED, _READS[name], {}, epochs=epochs, planned_on="x")


def _state(*epochs: int) -> CatalogState:
    state = CatalogState(next_epoch=max(epochs, default=0) + 1)
    for name in _ORDER:
        state = state.with_view(_view(name, *epochs))
    for epoch in epochs:
        versions = {name: ViewVersions(epoch, epoch, f"d{epoch}", f"d{epoch}") for name in _ORDER}
        state = state.with_epoch(EpochEntry(epoch, {}, tuple(_ORDER), "run", versions))
    return state


def _reached(state: CatalogState, name: str, epoch: int) -> ViewProgress:
    return ViewProgress(state.working.views[name].reached(epoch), ViewVersions(epoch, epoch, f"d{epoch}", f"d{epoch}"))


def _claim(views: Iterable[str], holder: str = "x", epoch: int = UNNUMBERED, **of_epoch: Any) -> Claim:
    entry = EpochEntry(epoch, {}, tuple(views), holder, **of_epoch)
    return Claim(holder, f"run {holder}", tuple(views), "at work", "here", 1, datetime(2026, 1, 1, tzinfo=timezone.utc), entry)


def _begun(state: CatalogState, views: Iterable[str] = tuple(_ORDER), holder: str = "x", **of_epoch: Any) -> CatalogState:
    return begun(state, _claim(views, holder, **of_epoch))


_SUBSETS = [{name for name, bad in zip(_ORDER, bits, strict=True) if bad} for bits in product([False, True], repeat=5)]


@pytest.mark.parametrize("failing", _SUBSETS, ids=lambda names: "+".join(sorted(names)) or "none")
def test_whatever_fails_the_others_reach_the_epoch_and_nobody_mixes_two(failing: set[str]) -> None:
    state = _state(1)
    running = _begun(state)
    assert running.claims["x"].epoch.epoch == 2
    behind = {*failing, *blocked_by(running, _ORDER, failing)}
    done = {name: _reached(running, name, 2) for name in _ORDER if name not in behind}
    after = completed(running, "x", done, {name: Problem("bad row", 2) for name in behind})
    assert not after.claims
    assert after.next_epoch == 3
    for name in _ORDER:
        view = after.views[name]
        assert (view.problem is not None) == (name in behind)
        assert view.last_epoch == (1 if name in behind else 2)
        # A view at an epoch has all that it reads at that epoch.
        assert all(view.last_epoch in after.views[up].epochs for up in view.reads)
        assert after.epochs[view.last_epoch].versions[name].digest == f"d{view.last_epoch}"
    assert (2 in after.epochs) == bool(done), "an epoch that nobody has reached is forgotten"
    # The next run brings all of them along, from where each is.
    again = _begun(after)
    last = completed(again, "x", {name: _reached(again, name, 3) for name in _ORDER}, {})
    assert all(v.last_epoch == 3 and v.problem is None for v in last.views.values())


def test_what_is_rebuilt_stands_beside_what_readers_see_until_it_is_complete() -> None:
    state = to_rebuild(_state(1), ["a"])
    assert set(state.rebuilds) == {"a", "over_a", "over_both", "top"}
    assert all(view.last_epoch == 1 for view in state.views.values())
    assert all(view.last_epoch is None and not view.planned_on for view in state.rebuilds.values())
    assert {v.generation for v in state.rebuilds.values()} & {v.generation for v in state.views.values()} == set()
    half = completed(_begun(state), "x", {n: _reached(state, n, 2) for n in ("a", "b")}, {"over_a": Problem("bad")})
    assert (half.views["a"].generation, half.views["over_a"].generation) == (
        state.rebuilds["a"].generation,
        state.views["over_a"].generation,
    )
    assert set(half.rebuilds) == {"over_a", "over_both", "top"}
    assert half.versions_at("over_a").digest == "d1", "what readers see of it"
    with pytest.raises(DeclarationError, match="no materialized view named nope to rebuild; there are a, b, over_a"):
        to_rebuild(state, ["nope"])


def test_the_number_of_a_forgotten_epoch_is_not_used_again() -> None:
    after = completed(_begun(_state(1), ["a"]), "x", {}, {})
    assert (after.next_epoch, set(after.epochs)) == (3, {1})


def test_a_view_that_follows_reaches_an_epoch_beside_another_that_does() -> None:
    state = completed(_begun(_state(1), ["a", "b"]), "x", {n: _reached(_state(1), n, 2) for n in ("a", "b")}, {})
    state = _begun(_begun(state, ["over_a"], "x", epoch=2), ["over_both"], "y", epoch=2)
    for holder, name in (("y", "over_both"), ("x", "over_a")):
        state = completed(state, holder, {name: _reached(state, name, 2)}, {})
    assert set(state.epochs[2].versions) == {"a", "b", "over_a", "over_both"}
    assert (state.next_epoch, state.claims) == (3, {})


def test_views_that_follow_at_the_same_time_read_the_same_version_of_a_source() -> None:
    state = completed(_begun(_state(1), ["a", "b"]), "x", {n: _reached(_state(1), n, 2) for n in ("a", "b")}, {})
    seven, nine = Pin(7, "uuid", "{}"), Pin(9, "uuid", "{}")

    def follow(state: CatalogState, view: str, holder: str, pin: Pin) -> CatalogState:
        claim = _claim([view], holder, 2)
        return begun(state, replace(claim, epoch=replace(claim.epoch, pins={"late": pin})))

    first = follow(state, "over_a", "x", seven)
    with pytest.raises(Claimed, match="has pinned late at the same time"):
        follow(first, "over_both", "y", nine)
    done = completed(first, "x", {"over_a": _reached(first, "over_a", 2)}, {})
    with pytest.raises(Claimed, match="has pinned late"):
        follow(done, "over_both", "y", nine)
    both = follow(done, "over_both", "y", seven)
    assert both.claims["y"].epoch.pins == done.epochs[2].pins == {"late": seven}


def test_a_dead_run_is_settled_by_one_run_only_and_not_if_it_lives_after_all() -> None:
    state = _begun(_state(1), ["a"], "dead")
    dead = state.claims["dead"]
    settled = taken_over(state, dead, _claim(["a"], "x"))
    assert (settled.claims["x"].epoch, set(settled.claims)) == (dead.epoch, {"x"})
    with pytest.raises(Claimed, match="is being settled by another run"):
        taken_over(settled, dead, _claim(["a"], "y"))
    renewed = state.with_claim(replace(dead, until=dead.until + timedelta(minutes=2)))
    with pytest.raises(Claimed):
        taken_over(renewed, dead, _claim(["a"], "y"))


@pytest.mark.parametrize("mine", [["a"], ["a", "over_a"], ["b"], ["top"]])
@pytest.mark.parametrize("theirs", [["a"], ["b", "over_both"], ["top"]])
def test_no_view_is_in_two_epochs_at_once(mine: list[str], theirs: list[str]) -> None:
    state = _begun(_state(1), mine)
    if set(mine) & set(theirs):
        with pytest.raises(Claimed, match="process 1 on here"):
            _begun(state, theirs, "y")
        return
    both = _begun(state, theirs, "y")
    assert [claim.epoch.epoch for claim in both.claims.values()] == [2, 3]
    # Whichever is done first, both are there in the end.
    for order in (("x", mine), ("y", theirs)), (("y", theirs), ("x", mine)):
        after = both
        for holder, names in order:
            number = after.claims[holder].epoch.epoch
            after = completed(after, holder, {name: _reached(after, name, number) for name in names}, {})
        assert all(after.views[name].last_epoch in (2, 3) for name in (*mine, *theirs))
        assert not after.claims


_STEPS = ("begin", "commit a", "commit b", "complete")


@pytest.mark.parametrize("order", sorted(set(permutations("x" * len(_STEPS) + "y" * len(_STEPS)))), ids="".join)
def test_of_two_runs_that_take_each_other_for_dead_each_epoch_counts_once(order: tuple[str, ...]) -> None:
    """All interleavings of two runs over the same views, the later of which always thinks that the earlier one has died.

    What a run commits is on top of what the catalog had recorded when it began, or of what it took back; so of the commits
    that the catalog has recorded each must build on the one that was recorded before it.
    """
    state = _state(1)
    places = dict.fromkeys("xy", 0)
    seen: dict[str, int] = {}
    history = {name: [1] for name in ("a", "b")}
    done: dict[str, dict[str, ViewProgress]] = {"x": {}, "y": {}}
    lost: set[str] = set()
    for holder in order:
        step, places[holder] = _STEPS[places[holder]], places[holder] + 1
        if holder in lost:
            continue
        if step == "begin":
            for dead in conflicting_claims(state, holder, ["a", "b"]):
                state = taken_over(state, dead, _claim(dead.views, holder))
                # What it had committed is in the tables, and is published.
                settled = {n: r for n, r in done[dead.id].items() if dead.epoch.epoch in r.view.epochs}
                state = completed(state, holder, settled, {})
                for name in settled:
                    history[name].append(dead.epoch.epoch)
            state = _begun(state, ["a", "b"], holder)
            seen[holder] = state.claims[holder].epoch.epoch
        elif step.startswith("commit"):
            name = step[-1]
            if holder in state.claims:  # else the fence refuses
                done[holder][name] = _reached(state, name, seen[holder])
        else:
            try:
                state = completed(state, holder, done[holder], {})
            except ClaimLost:
                lost.add(holder)
                continue
            for name in done[holder]:
                history[name].append(seen[holder])
    for name, epochs in history.items():
        assert list(state.views[name].epochs) == epochs == sorted(set(epochs))
        assert state.versions_at(name).digest == f"d{epochs[-1]}"
    assert not state.claims
    assert set(seen.values()) == {2, 3}, "no two epochs have a number"


def test_a_problem_that_is_solved_is_forgotten() -> None:
    state = left_behind(_state(1), {"a": Problem("bad")})
    assert clear_errors(state, ["b"]) == state
    assert clear_errors(state, ["a", "b"]).views["a"].problem is None


def test_a_first_build_has_nobody_beside_it() -> None:
    state = CatalogState().with_view(_view("a"))
    again = state.with_rebuild(replace(state.views["a"].restarted()))
    assert not again.rebuilds
    assert again.views["a"].generation != state.views["a"].generation
