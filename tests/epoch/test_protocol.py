"""The transitions of epochs, without Spark: what the catalog says after each, whichever views failed on the way."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from jobs.catalog.entries import CatalogState, EpochEntry, Problem, ViewEntry, ViewVersions
from jobs.epoch.protocol import Reached, begun, completed, forgotten, left_behind, solved, to_rebuild, waiting
from state_lib.errors import DeclarationError

_READS = {"a": (), "b": (), "over_a": ("a",), "over_both": ("a", "b"), "top": ("over_both",)}
_ORDER = list(_READS)


def _view(name: str, *epochs: int) -> ViewEntry:
    return ViewEntry(name, f"SELECT {name}", "incremental", None, None, (), _READS[name], {}, epochs=epochs, planned_on="x")


def _state(*epochs: int) -> CatalogState:
    state = CatalogState(next_epoch=max(epochs, default=0) + 1)
    for name in _ORDER:
        state = state.with_view(_view(name, *epochs))
    for epoch in epochs:
        versions = {name: ViewVersions(epoch, epoch, f"d{epoch}", f"d{epoch}") for name in _ORDER}
        state = state.with_epoch(EpochEntry(epoch, {}, tuple(_ORDER), "run", True, versions))
    return state


def _reached(state: CatalogState, name: str, epoch: int) -> Reached:
    return Reached(state.working.views[name].reached(epoch), ViewVersions(epoch, epoch, f"d{epoch}", f"d{epoch}"))


_SUBSETS = [{name for name, bad in zip(_ORDER, bits, strict=True) if bad} for bits in product([False, True], repeat=5)]


@pytest.mark.parametrize("failing", _SUBSETS, ids=lambda names: "+".join(sorted(names)) or "none")
def test_whatever_fails_the_others_reach_the_epoch_and_nobody_mixes_two(failing: set[str]) -> None:
    state = _state(1)
    epoch = EpochEntry(2, {}, tuple(_ORDER), "run")
    running = begun(state, epoch)
    assert running.running_epoch == epoch
    behind = {*failing, *waiting(running, _ORDER, failing)}
    done = {name: _reached(running, name, 2) for name in _ORDER if name not in behind}
    after = completed(running, epoch, done, {name: Problem("bad row", 2) for name in behind})
    assert after.running_epoch is None
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
    again = begun(after, EpochEntry(3, {}, tuple(_ORDER), "run"))
    last = completed(again, again.running_epoch, {name: _reached(again, name, 3) for name in _ORDER}, {})
    assert all(v.last_epoch == 3 and v.problem is None for v in last.views.values())


def test_what_is_rebuilt_stands_beside_what_readers_see_until_it_is_complete() -> None:
    state = to_rebuild(_state(1), ["a"])
    assert set(state.rebuilds) == {"a", "over_a", "over_both", "top"}
    assert all(view.last_epoch == 1 for view in state.views.values())
    assert all(view.last_epoch is None and not view.planned_on for view in state.rebuilds.values())
    assert {v.generation for v in state.rebuilds.values()} & {v.generation for v in state.views.values()} == set()
    epoch = EpochEntry(2, {}, tuple(_ORDER), "run")
    half = completed(begun(state, epoch), epoch, {n: _reached(state, n, 2) for n in ("a", "b")}, {"over_a": Problem("bad")})
    assert (half.views["a"].generation, half.views["over_a"].generation) == (
        state.rebuilds["a"].generation,
        state.views["over_a"].generation,
    )
    assert set(half.rebuilds) == {"over_a", "over_both", "top"}
    assert half.versions_at("over_a").digest == "d1", "what readers see of it"
    with pytest.raises(DeclarationError, match="no materialized view named nope to rebuild; there are a, b, over_a"):
        to_rebuild(state, ["nope"])


def test_a_rebuild_that_was_only_to_be_cheaper_ends_with_its_epoch() -> None:
    state = _state(1)
    state = state.with_rebuild(state.views["b"].restarted())
    epoch = EpochEntry(2, {}, ("b",), "run", anew={"b": "cheaper"})
    running = begun(state, epoch)
    assert not forgotten(running, epoch).rebuilds
    assert not completed(running, epoch, {}, {"b": Problem("bad")}).rebuilds


def test_the_number_of_a_forgotten_epoch_is_not_used_again() -> None:
    state = _state(1)
    epoch = EpochEntry(2, {}, ("a",), "run")
    assert forgotten(begun(state, epoch), epoch).next_epoch == 3


def test_a_problem_that_is_solved_is_forgotten() -> None:
    state = left_behind(_state(1), {"a": Problem("bad")})
    assert solved(state, ["b"]) == state
    assert solved(state, ["a", "b"]).views["a"].problem is None


def test_a_first_build_has_nobody_beside_it() -> None:
    state = CatalogState().with_view(_view("a"))
    again = state.with_rebuild(replace(state.views["a"].restarted()))
    assert not again.rebuilds
    assert again.views["a"].generation != state.views["a"].generation
