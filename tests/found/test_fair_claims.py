"""Who waits for views has its turn before those that come later."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Warehouse
from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.engine import failpoints
from tests.epoch.scripts import Script

_WAIT = Patience(60)


def _waiting(home: Warehouse, count: int) -> None:
    """Wait until so many wait."""
    deadline = time.monotonic() + 30
    while sum(claim.ticket is not None for claim in home.read().claims.values()) < count:
        assert time.monotonic() < deadline, "nobody lines up"
        time.sleep(0.02)


def test_three_have_their_turns_as_they_came(tmp_path: Path) -> None:
    root, turns = tmp_path / "wh", list[str]()

    def turn(name: str, views: list[str]) -> None:
        with Claims(Warehouse(root), name, "taking its turn at", _WAIT) as claims:
            claims.take(views)
            turns.append(name)
            claims.give_back()

    home = Warehouse(root)
    with Claims(home, "first", "holding") as first, ThreadPoolExecutor() as pool:
        first.take(["a"])
        waits = []
        for count, (name, views) in enumerate([("second", ["a", "b"]), ("third", ["b"]), ("fourth", ["a"])], start=1):
            waits.append(pool.submit(turn, name, views))
            _waiting(home, count)
        turn("other", ["c"])
        first.give_back()
        # As a process does that runs again at once.
        waits.append(pool.submit(turn, "first again", ["a"]))
        for wait in waits:
            wait.result(timeout=60)
    assert turns[:2] == ["other", "second"]
    assert turns.index("fourth") < turns.index("first again")
    assert set(turns[2:]) == {"third", "fourth", "first again"}
    assert home.read().claims == {}


def test_one_that_has_died_or_given_up_is_passed_over(tmp_path: Path) -> None:
    home = Warehouse(tmp_path / "wh")
    with Claims(home, "first", "holding") as first:
        first.take(["a"])
        with pytest.raises(Exception, match="is still at work"), Claims(home, "gives up", "waiting", Patience(0.5)) as second:
            second.take(["a"])
        assert set(home.read().claims) == {first.id}
        dead = Claims(home, "dies", "waiting", Patience(0.5))
        dead._is_entered = True
        with pytest.raises(Exception, match="is still at work"):
            dead.take(["a"])
        assert home.read().claims[dead.id].ticket is not None
        first.give_back()
    with Claims(home, "next", "taking", Patience(0)) as after:
        after.take(["a"])
        assert set(home.read().claims) == {after.id}


def test_a_process_that_runs_again_and_again_lets_two_others_in(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(spark, tmp_path / "wh")
    script.run("CREATE TABLE t (k INT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
    begun, go_on, begins = threading.Event(), threading.Event(), list[str]()

    def runs(name: str, times: int) -> None:
        runner = EpochRunner(spark, Warehouse(tmp_path / "wh"), patience=_WAIT)
        for n in range(times):
            spark.sql(f"INSERT INTO delta.`{tmp_path}/wh/sources/t` VALUES ({n})")
            list(runner.run(["v"], run_id=f"{name} {n}"))

    def reached(place: str) -> None:
        if place == "after_begin":
            begins.extend(claim.run_id for claim in Warehouse(tmp_path / "wh").read().claims.values() if claim.ticket is None)
            begun.set()
            assert go_on.wait(60)
            # Or the next run would find that this one's epoch has all rows, and begin none.
            spark.sql(f"INSERT INTO delta.`{tmp_path}/wh/sources/t` VALUES (0)")

    monkeypatch.setattr(failpoints, "reached", reached)
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(runs, "busy", 3)]
        assert begun.wait(60)
        for count, name in enumerate(("second", "third"), start=1):
            waits.append(pool.submit(runs, name, 1))
            _waiting(script.warehouse, count)
        go_on.set()
        for wait in waits:
            wait.result(timeout=120)
    assert begins[:3] == ["busy 0", "second 0", "third 0"] or begins[1:4] == ["second 0", "third 0", "busy 1"], begins
    script.verify()
