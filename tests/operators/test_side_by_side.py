"""Calls at the same time: all run, in whatever order; one of a name; errors come out and leave nothing running."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from relstate_dagster.jobs.operators.side_by_side import SideBySide


def test_calls_meet_while_they_run() -> None:
    barrier = threading.Barrier(3, timeout=30)
    with SideBySide() as steps:
        assert sorted(steps.all(*(partial(barrier.wait),) * 3)) == [0, 1, 2]


def test_results_come_in_order_and_nested_calls_find_threads() -> None:
    with SideBySide() as steps:

        def depth(n: int) -> int:
            return 0 if n == 0 else 1 + sum(steps.all(partial(depth, n - 1), partial(depth, n - 1)))

        assert steps.all(partial(depth, 6), partial(depth, 1)) == [63, 1]
        assert steps.all() == []


def test_a_name_is_computed_once_for_all_who_ask() -> None:
    made: list[int] = []
    started = threading.Event()

    def make() -> int:
        started.wait(30)
        made.append(1)
        return len(made)

    def ask() -> int:
        return steps.once("name", make)

    def release() -> int:
        started.set()
        return 1

    with SideBySide() as steps:
        assert steps.all(ask, ask, release, ask) == [1, 1, 1, 1]
    assert made == [1]


def test_an_error_comes_out_once_all_have_ended() -> None:
    ended = threading.Event()
    failed = threading.Event()

    def fail() -> bool:
        failed.set()
        raise ValueError("first")

    def slow() -> bool:
        failed.wait(30)
        ended.set()
        return True

    with SideBySide() as steps:
        with pytest.raises(ValueError, match="first"):
            steps.all(fail, slow)
        assert ended.is_set()
        for _ in range(2):
            with pytest.raises(ValueError, match="first"):
                steps.once("failing", fail)
