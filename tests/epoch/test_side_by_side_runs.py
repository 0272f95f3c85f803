"""Runs at the same time: over other views they do not meet, over the same ones the second waits, whatever the first is at."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Registry, Warehouse, snapshot
from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.entries import SourceEntry
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.declare import ViewDeclaration
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.state_lib.errors import DeclarationError, EpochError
from tests.epoch.killed import in_process
from tests.epoch.scripts import Script

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE TABLE u (k INT, v INT, PRIMARY KEY (k));
INSERT INTO t SELECT id, id % 3, id FROM range(12);
INSERT INTO u SELECT id, id FROM range(5);
CREATE MATERIALIZED VIEW a AS SELECT g, sum(v) AS s FROM t GROUP BY g;
CREATE MATERIALIZED VIEW x AS SELECT g, s FROM a WHERE s > 10;
CREATE MATERIALIZED VIEW b AS SELECT sum(v) AS s FROM u;
"""
_CHANGES = "UPDATE t SET v = v + 100 WHERE k < 6; DELETE FROM u WHERE k = 1"


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path) -> Script:
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP + _CHANGES)
    return script


@pytest.fixture(params=["after_begin", "before_publish", "before_complete"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _runner(script: Script, **options: object) -> EpochRunner:
    """A runner as another process has it: with a catalog of its own."""
    return EpochRunner(script.session._spark, Warehouse(script.warehouse.root), **options)


def _during(
    monkeypatch: pytest.MonkeyPatch, place: str, first: Iterator[object], then: Callable[[], object]
) -> tuple[list[object], object]:
    """Go through a run, and do something else in the middle of it."""
    found: list[object] = []

    def reached(now: str) -> None:
        if now == place and not found:
            found.append(None)
            found[0] = then()

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reached", reached)
        reports = list(first)
    assert found, f"the run did not come to {place}"
    return reports, found[0]


def test_runs_over_other_views_do_not_meet(script: Script, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    other = _runner(script, patience=Patience(0))
    first, second = _during(monkeypatch, place, _runner(script).run(["a", "x"]), lambda: list(other.run(["b"])))
    assert {r.view for r in first} == {"a", "x"}
    (report,) = second
    assert not report.skipped
    state = script.warehouse.read()
    epochs = {name: view.last_epoch for name, view in state.views.items()}
    assert epochs["a"] == epochs["x"] != epochs["b"], "views of one run share an epoch"
    assert not state.claims
    script.verify()
    assert all(r.skipped for r in _runner(script).run())
    script.run(f"{_CHANGES.replace('k = 1', 'k = 2')}; REFRESH; VERIFY")


def test_a_run_over_the_same_view_waits_for_the_first(script: Script, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    waits, said = threading.Event(), list[str]()

    def on_wait(message: str) -> None:
        said.append(message)
        waits.set()

    with ThreadPoolExecutor(1) as pool:

        def start_and_wait() -> object:
            started = pool.submit(lambda: list(_runner(script, patience=Patience(on_wait=on_wait)).run(["a", "b"])))
            assert waits.wait(180)
            return started

        _, started = _during(monkeypatch, place, _runner(script).run(["a"]), start_and_wait)
        reports = started.result(120)
    assert said[0].startswith("waiting for process ")
    assert said[0].endswith("which is bringing up to date a")
    assert {r.view for r in reports} == {"a", "b"}
    script.verify()
    assert not script.warehouse.read().claims


def test_a_view_over_one_that_is_at_work_keeps_to_the_epoch_before(
    script: Script, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    list(_runner(script).run(["a"]))
    script.run("UPDATE t SET v = v + 1 WHERE k = 3")
    other = _runner(script, patience=Patience(0))
    _, reports = _during(monkeypatch, place, _runner(script).run(["a"]), lambda: list(other.run(["x"])))
    state = script.warehouse.read()
    assert [r.epoch for r in reports] == [state.views["a"].epochs[-2]] == [state.views["x"].last_epoch]
    script.verify()
    list(_runner(script).run(["x"]))
    assert script.warehouse.read().views["x"].last_epoch == state.views["a"].last_epoch
    script.verify()


def test_a_view_over_one_that_is_rebuilt_waits_for_it(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    other = _runner(script, patience=Patience(0))

    def refused() -> None:
        with pytest.raises(EpochError, match="which is bringing up to date a, is still at work; run again later"):
            list(other.run(["x"]))

    _during(monkeypatch, "before_publish", _runner(script).run(["a"], full_refresh=["a"]), refused)
    script.run("REFRESH; VERIFY")


def test_a_full_refresh_of_a_view_that_is_not_selected_is_made_by_the_next_run_that_has_it(script: Script) -> None:
    script.run("REFRESH")
    assert all(r.skipped for r in _runner(script).run(["b"], full_refresh=["a"]))
    assert set(script.warehouse.read().rebuilds) == {"a", "x"}
    assert {r.view for r in _runner(script).run() if not r.skipped} == {"a", "x"}
    assert not script.warehouse.read().rebuilds
    script.verify()


def test_what_is_at_work_is_neither_edited_nor_dropped(
    spark: SparkSession, script: Script, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    registry = Registry(spark, Warehouse(script.warehouse.root), Patience(0))

    def declare() -> None:
        with pytest.raises(EpochError, match="is bringing up to date x, is still at work"):
            registry.drop("x", "view")
        edited = ViewDeclaration("x", "SELECT g, s + 1 AS s FROM a")
        with pytest.raises(EpochError, match="still at work"):
            registry.declare([edited])
        # Others may be.
        registry.declare([ViewDeclaration("y", "SELECT max(v) AS v FROM u")])
        registry.drop("b", "view")

    _during(monkeypatch, place, _runner(script).run(["a", "x"]), declare)
    state = script.warehouse.read()
    assert set(state.views) == {"a", "x", "y"}
    script.run("REFRESH; VERIFY")
    registry.drop("x", "view")


def test_what_edits_or_drops_a_view_at_work_says_whom_it_waits_for_and_can_be_interrupted(
    spark: SparkSession, script: Script
) -> None:
    class Interrupted(Exception):
        pass

    said: list[str] = []

    def interrupted() -> None:
        if said:
            raise Interrupted

    registry = Registry(spark, Warehouse(script.warehouse.root), Patience(60, said.append, interrupted))
    source = script.warehouse.read().sources["t"]
    with Claims(script.warehouse, "the-other-run", "bringing up to date") as other:
        other.take(["a", "x"])
        for change in (
            lambda: registry.drop("x", "view"),
            lambda: registry.declare([ViewDeclaration("x", "SELECT g, s + 1 AS s FROM a")]),
            lambda: registry.add_source(replace(source, append_only=True)),
        ):
            with pytest.raises(Interrupted):
                change()
            assert "(run the-other-run), which is bringing up to date" in said.pop()
            assert not said
    script.run("REFRESH; VERIFY")


def test_what_a_dead_run_left_is_settled_by_the_next_one_that_wants_its_views(script: Script, jvm: SparkSession | None) -> None:
    root = Path(script.warehouse.root)
    assert in_process("REFRESH VIEW a", root, "before_publish", jvm).returncode == -signal.SIGKILL
    (claim,) = script.warehouse.read().claims.values()
    # A run over other views leaves it alone, and is not in its way.
    assert {r.view for r in _runner(script, patience=Patience(0)).run(["b"])} == {"b"}
    assert set(script.warehouse.read().claims) == {claim.id}
    # Old files may go, and what it left waits for the run that settles it.
    list(_runner(script, patience=Patience(0)).vacuum(hours=0))
    assert set(script.warehouse.read().claims) == {claim.id}
    reports = list(_runner(script, patience=Patience(0)).run(["a"]))
    assert [(r.view, r.is_repair) for r in reports] == [("a", True), ("a", False)]
    script.run("REFRESH; VERIFY")
    assert not script.warehouse.read().claims


def test_what_a_dead_run_left_of_a_view_that_is_dropped_is_forgotten(script: Script, jvm: SparkSession | None) -> None:
    root = Path(script.warehouse.root)
    assert in_process("REFRESH VIEW b", root, "after_begin", jvm).returncode == -signal.SIGKILL
    assert script.warehouse.read().claims
    script.run("DROP MATERIALIZED VIEW b")
    assert not script.warehouse.read().claims
    script.run("CREATE MATERIALIZED VIEW b AS SELECT count(*) AS n FROM u; REFRESH; VERIFY")


def test_a_run_of_another_machine_is_dead_when_its_lease_has_run_out(
    script: Script, monkeypatch: pytest.MonkeyPatch, jvm: SparkSession | None
) -> None:
    root = Path(script.warehouse.root)
    with monkeypatch.context() as patched:
        patched.setenv("RELSTATE_LEASE_SECONDS", "1")
        assert in_process("REFRESH VIEW a", root, "after_state_commit", jvm).returncode == -signal.SIGKILL
    monkeypatch.setattr("socket.gethostname", lambda: "another-machine")
    assert {r.view for r in _runner(script, patience=Patience(5)).run(["a"])} == {"a"}
    script.run("REFRESH; VERIFY")


def test_views_at_different_epochs_say_so_in_a_snapshot(script: Script) -> None:
    list(_runner(script).run(["b"]))
    found = snapshot(script.warehouse)
    assert set(found.views) == {"a", "b", "x"}
    assert not found.mixed, "a and b read different sources"
    script.run("CREATE MATERIALIZED VIEW c AS SELECT count(*) AS n FROM t")
    found = snapshot(script.warehouse)
    assert set(found.mixed) == {"t"}
    assert found.mixed["t"]["a"] == found.mixed["t"]["x"] < found.mixed["t"]["c"]
    script.run("REFRESH")
    found = snapshot(script.warehouse, ["a", "c"])
    assert not found.mixed
    for view in found.views.values():
        rows = script.session._spark.read.format("delta").option("versionAsOf", view.version).load(view.path)
        assert rows.count() == len(script.rows(f"SELECT * FROM {view.view}"))
    before = snapshot(script.warehouse, ["a"], found.views["a"].epoch - 1)
    assert before.views["a"].epoch < found.views["a"].epoch
    with pytest.raises(EpochError, match="view c has no epoch up to 1 that the catalog remembers"):
        snapshot(script.warehouse, ["c"], 1)
    with pytest.raises(DeclarationError, match="no materialized view named nope"):
        snapshot(script.warehouse, ["nope"])


def test_sources_are_declared_by_two_at_once(spark: SparkSession, script: Script) -> None:
    warehouse = Warehouse(script.warehouse.root)

    def declare(name: str) -> None:
        Registry(spark, Warehouse(warehouse.root)).add_source(SourceEntry(name, warehouse.source_path("t"), ("k",)))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(declare, ["s1", "s2", "s3"]))
    assert {"s1", "s2", "s3"} <= set(warehouse.read().sources)
