"""Views start in the order of the longest path over them."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

from relstate_dagster.jobs.catalog.costs import Costs, EpochCost
from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.run.critical_path import critical_paths
from relstate_dagster.jobs.run.parallel_views import _next_views


def _view(name: str, reads: tuple[str, ...] = (), seconds: float | None = None) -> ViewEntry:
    full = None if seconds is None else EpochCost(1, seconds)
    return ViewEntry(name, "", "incremental", None, Mock(), reads, {}, costs=Costs(full))


def test_a_path_is_as_long_as_its_views_take() -> None:
    views = [_view("a", seconds=2), _view("b", ("a", "t"), 5), _view("c", ("a",), 1), _view("d", ("b", "c"), 1)]
    assert critical_paths(views) == {"a": 8, "b": 6, "c": 2, "d": 1}
    # A view that is built takes as long as in its last epochs.
    changed = replace(views[1].costs, changes={3: (EpochCost(1, 9.0), EpochCost(1, 0.5))})
    views[1] = replace(views[1], epochs=(1,), costs=changed)
    assert critical_paths(views)["a"] == 4.0
    # Nothing is known of new ones but how many stand over each other.
    assert critical_paths([_view("a"), _view("b", ("a",)), _view("c", ("b",)), _view("d")]) == {"a": 3, "b": 2, "c": 1, "d": 1}


def _seconds_of_run(views: list[ViewEntry], parallel: int, choose: Any) -> float:
    """Seconds that a run takes, whose views take what is expected of them."""
    pending, running, now = {v.name: v for v in views}, dict[str, float](), 0.0
    while pending or running:
        for name in choose(pending, running):
            running[name] = now + pending.pop(name).costs.full.seconds
        assert len(running) <= parallel
        now = min(running.values())
        running = {name: end for name, end in running.items() if end > now}
    return now


def test_drawn_graphs_take_no_longer_than_in_the_given_order_together() -> None:
    """One graph may; a hundred of them do not."""
    draw, by_path, as_given = random.Random(7), 0.0, 0.0
    for _ in range(100):
        views: list[ViewEntry] = []
        for n in range(draw.randint(4, 20)):
            below = tuple(v.name for v in draw.sample(views, min(len(views), draw.randint(0, 2))))
            views.append(_view(f"v{n}", below, draw.choice([0.5, 1, 1, 2, 8])))
        paths = critical_paths(views)

        def given(pending: dict[str, ViewEntry], running: dict[str, float]) -> list[str]:
            unfinished = {*pending, *running}
            ready = (name for name, v in pending.items() if not unfinished & set(v.reads))
            return list(itertools.islice(ready, 3 - len(running)))

        by_path += _seconds_of_run(views, 3, lambda pending, running, paths=paths: _next_views(pending, running, paths, 3))
        as_given += _seconds_of_run(views, 3, given)
    assert by_path < 0.97 * as_given
