"""Large views are built in slices: none is seen before all are, none is computed twice, and the result is that of the query."""

from __future__ import annotations

import re
import shutil
import signal
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from relstate_dagster.cli.app import app
from relstate_dagster.jobs.catalog.entries import SourceEntry, ViewEntry
from relstate_dagster.jobs.declare import materialized_view
from relstate_dagster.jobs.plan.nodes import walk
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.jobs.run.epochs import Epochs
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.targets.chain import EpochCommit
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.state_lib.errors import EpochError
from relstate_dagster.state_lib.lake.log import DeltaLog
from tests.epoch.killed import run_in_process, two_runs_at_once
from tests.epoch.scripts import Script
from tests.sizes import Resized

#: Six files of t, with rows in them that are marked as deleted, and of n, which has no key and is only appended to.
_SOURCES = """
CREATE TABLE t (k INT, g INT, v INT, d DOUBLE, at TIMESTAMP, PRIMARY KEY (k))
    TBLPROPERTIES ('delta.enableDeletionVectors' = 'true');
CREATE TABLE m (g INT, s STRING);
CREATE TABLE n (g INT, x INT) TBLPROPERTIES ('delta.appendOnly' = 'true');
INSERT INTO t SELECT /*+ REPARTITION(6) */ id, id % 3, id % 7, id / 3,
    TIMESTAMP '2026-01-01 00:00:00Z' + make_interval(0, 0, 0, 0, 0, id) FROM range(60);
INSERT INTO m VALUES (0, 'a'), (0, 'a'), (1, 'b'), (9, 'z');
INSERT INTO n SELECT /*+ REPARTITION(6) */ id % 4, id % 5 FROM range(60);
DELETE FROM t WHERE k IN (11, 29, 55);
"""
_VIEWS = {
    "above": "SELECT k FROM t WHERE v > (SELECT avg(v) FROM t)",
    "all_of_it": "SELECT count(*) AS n, max(v) AS v, sum(d) AS d FROM t",
    "extremes": "SELECT g, min(v) AS lo, max(k) AS hi, count(DISTINCT v) AS n FROM t GROUP BY g",
    "first_ones": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 5",
    "itself": "SELECT a.k, b.k AS other FROM t a JOIN t b ON a.v = b.v AND a.k < b.k",
    "nothing": "SELECT g, count(*) AS n FROM t WHERE v > 1000 GROUP BY g",
    "of_keyless": "SELECT n.g, t.k, count(*) AS c FROM n JOIN t ON n.x = t.v GROUP BY n.g, t.k",
    "pairs": "SELECT t.v, m.s FROM t LEFT JOIN m ON t.g = m.g",
    "ranked": "SELECT k, row_number() OVER (PARTITION BY g ORDER BY v, k) AS r FROM t",
    "recent": "SELECT k, g FROM t WHERE at > current_timestamp() - INTERVAL 1 HOUR",
    "sums": "SELECT g, count(*) AS n, sum(v) AS v, sum(d) AS d FROM t GROUP BY g",
    "without": "SELECT v FROM t EXCEPT SELECT x FROM n",
}
_CHANGES = """
UPDATE t SET g = g + 1, v = v * 10 WHERE k < 4;
DELETE FROM t WHERE k = 12;
INSERT INTO m VALUES (0, 'a'), (3, 'd');
DELETE FROM m WHERE g = 1;
INSERT INTO n VALUES (0, 0), (3, 4);
"""


#: Views that are computed at once: their partitions are computed whole whenever rows come in.
_AT_ONCE = {"ranked"}
_SLICED = {"slice_bytes": 1, "slices": 4, "slice_lookups": 0}


class Stopped(BaseException):
    """A run that is stopped from outside."""


class Home:
    """A warehouse with sources of several files, over which views are declared and not built."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.script = Script(spark, folder)
        self.script.begin(_SOURCES)
        self.warehouse = self.script.warehouse
        self.said: list[str] = []
        self._now = datetime(2026, 1, 1, 0, 10, tzinfo=timezone.utc)

    def declare(self, **views: str) -> None:
        """Declare views."""
        declared = [materialized_view(query=query, name=name) for name, query in views.items()]
        Registry(self.spark, self.warehouse).declare(declared)

    def run(self, stop_at: str = "(never)", **options: Any) -> list[ViewReport]:
        """A run, which may be stopped when it says something."""

        def said(text: str) -> None:
            self.said.append(text)
            if stop_at in text:
                raise Stopped(text)

        runner = EpochRunner(self.spark, self.warehouse, on_start=said, clock=self._clock)
        return list(runner.run(**options))

    def _clock(self) -> datetime:
        """Each epoch is twenty minutes after the one before: rows come in, and rows of earlier slices go."""
        self._now += timedelta(minutes=20)
        return self._now

    def stopped_at(self, what: str, **options: Any) -> None:
        """A run that was stopped when it began something."""
        with pytest.raises(Stopped):
            self.run(what, **options)

    def source(self, name: str) -> SourceEntry:
        """A source as the catalog has it."""
        return self.warehouse.read().sources[name]

    def view(self, name: str) -> ViewEntry:
        """A view as a run sees it."""
        return self.warehouse.read().working.views[name]

    def commits(self, view: str) -> list[tuple[str, int]]:
        """The state of a view: where it is, and the epochs that have committed to it."""
        path = self.warehouse.state_path(self.view(view))
        log = DeltaLog(path)
        made = (EpochCommit.of(log.commit(version)) for version in range(log.latest_version(None) + 1))
        return [(path, commit.epoch) for commit in made if commit is not None]


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path, resized: Resized) -> Home:
    """A warehouse in which each view over ``t`` or ``n`` is built in slices."""
    resized(**_SLICED)
    return Home(spark, tmp_path / "warehouse")


def test_views_built_in_slices_are_their_queries(home: Home) -> None:
    home.declare(**_VIEWS)
    reports = home.run()
    assert {said.split(":")[0] for said in home.said if "slice 2" in said} == _VIEWS.keys() - _AT_ONCE
    assert sorted(report.view for report in reports if report.is_backfill) == [*_VIEWS], "slices are not reported"
    home.script.verify()
    home.script.run(_CHANGES + "REFRESH")
    home.script.verify()


def test_the_rows_of_all_slices_are_counted_together(home: Home) -> None:
    home.declare(sums=_VIEWS["sums"])
    (report,) = (report for report in home.run(strict=True) if report.view == "sums")
    view = home.view("sums")
    assert view.rows is not None
    flows = {type(node).__name__: flow for node, flow in view.rows.by_node(view.plan).items()}
    inserted, deleted = flows["Materialize"]
    assert (flows["Scan"], inserted - deleted) == ((57, 0), report.rows_inserted)
    assert deleted, "a slice takes back what an earlier one gave"
    assert len(flows) == len({type(node).__name__ for node in walk(view.plan)}), "each edge has its rows"
    state = home.spark.read.format("delta").load(home.warehouse.state_path(view))
    assert sum(view.rows.written.values()) >= state.count() > 3, "nothing was merged away that was not written"
    home.run(full_refresh=["sums"], strict=True)
    again = home.view("sums").rows
    assert again is not None
    assert again.by_node(view.plan) == view.rows.by_node(view.plan), "the slices of another time do not count"


@pytest.mark.parametrize("failpoint", ["after_state_commit", "after_slice", "before_publish"])
def test_a_run_that_was_killed_loses_one_slice(
    home: Home, monkeypatch: pytest.MonkeyPatch, failpoint: str, jvm: SparkSession | None
) -> None:
    home.declare(of_keyless=_VIEWS["of_keyless"], sums=_VIEWS["sums"])
    monkeypatch.setenv("RELSTATE_SIZING", ",".join(f"{name}={value}" for name, value in _SLICED.items()))
    killed = run_in_process(home.folder, failpoint, jvm)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert home.view("of_keyless").last_epoch is None
    before = home.commits("of_keyless")
    assert before
    # What comes in between is read by the next run, with what was left.
    home.script.run(_CHANGES)
    home.run()
    assert home.commits("of_keyless")[: len(before)] == before, "what was committed is built upon"
    home.script.verify()
    assert all(report.skipped for report in home.run())


def test_two_runs_at_once_build_a_view_together(home: Home, monkeypatch: pytest.MonkeyPatch, jvm: SparkSession | None) -> None:
    home.declare(sums=_VIEWS["sums"], pairs=_VIEWS["pairs"])
    monkeypatch.setenv("RELSTATE_SIZING", ",".join(f"{name}={value}" for name, value in _SLICED.items()))
    two_runs_at_once(home.folder, jvm)
    assert len({path for path, _ in home.commits("sums")}) == 1
    home.script.verify()


def test_readers_see_the_old_rows_until_a_rebuild_is_whole(home: Home) -> None:
    home.declare(sums=_VIEWS["sums"])
    home.run()
    old = home.script.rows("SELECT * FROM sums")
    home.script.run(_CHANGES)
    home.stopped_at("slice 2", full_refresh=["sums"])
    assert home.script.rows("SELECT * FROM sums") == old
    # Its log has all that was there before, so that it is another one that is built.
    built = home.commits("sums")
    home.said.clear()
    home.run()
    assert home.commits("sums")[: len(built)] == built
    assert not any("slice 1" in said for said in home.said)
    home.script.verify()
    assert home.script.rows("SELECT * FROM sums") != old


def test_a_full_refresh_is_not_lost_to_a_run_that_begins_meanwhile(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.declare(sums=_VIEWS["sums"])
    home.run()
    old = home.commits("sums")
    home.script.run(_CHANGES)
    free, ended = Epochs.acquire_views, []

    def freed(epochs: Epochs, *arguments: Any) -> Any:
        """What is free at first is claimed by the other run as soon as that was seen; it ends a moment later."""
        state = yield from free(epochs, *arguments)
        if not ended:
            ended.append(threading.Timer(1.0, lambda: list(other)))
            monkeypatch.setattr(Epochs, "acquire_views", free)
            next(other)
            ended[0].start()
        return state

    other = EpochRunner(home.spark, home.warehouse).run()
    monkeypatch.setattr(Epochs, "acquire_views", freed)
    home.run(full_refresh=["sums"])
    ended[0].join()
    assert home.commits("sums")[0] != old[0]
    home.script.verify()


@pytest.mark.parametrize("lost", ["files", "table", "state"])
def test_what_is_lost_is_built_anew(home: Home, lost: str) -> None:
    home.declare(sums=_VIEWS["sums"])
    home.stopped_at("slice 2")
    first = home.commits("sums")
    if lost == "files":
        home.script.run("OPTIMIZE t")
        table = DeltaTable(home.source("t").path)
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    elif lost == "table":
        path = home.source("t").path
        old = home.spark.read.format("delta").load(path).localCheckpoint()
        shutil.rmtree(path)
        old.limit(30).write.format("delta").save(path)
    else:
        shutil.rmtree(first[0][0])
    home.run()
    assert home.commits("sums")[0] != first[0]
    home.script.verify()


def test_a_row_that_cannot_be_computed_may_go_before_the_next_run(home: Home) -> None:
    source = home.warehouse.source(home.source("t"))
    last = source.files(source.pin(None)).files[-3].path
    bad = pq.read_table(f"{source.path}/{last}")["k"][0].as_py()
    home.declare(parts=f"SELECT g, sum(100 / (k - {bad})) AS s FROM t GROUP BY g")
    for _ in range(2):
        with pytest.raises(EpochError, match="zero"):
            home.run()
        assert home.view("parts").built_until is not None
    home.script.run(f"DELETE FROM t WHERE k = {bad}")
    home.run()
    assert [epoch for _, epoch in home.commits("parts")][:1] == [1]
    home.script.verify()


def test_an_edit_and_a_drop_forget_slices(home: Home) -> None:
    home.declare(sums=_VIEWS["sums"])
    home.stopped_at("slice 2")
    home.declare(sums=_VIEWS["extremes"])
    assert home.view("sums").built_until is None
    home.stopped_at("slice 2")
    home.script.run("DROP MATERIALIZED VIEW sums")
    home.declare(sums=_VIEWS["of_keyless"])
    home.stopped_at("slice 2")
    built = home.view("sums").built_until
    assert built is not None
    home.run()
    home.script.verify()
    # The rows of n have the numbers that its pin gives out: all slices go by one pin.
    assert home.warehouse.read().last_pins["n"] == built.pins["n"].whole


def test_a_version_before_that_of_the_slices_is_read_from_the_beginning(home: Home) -> None:
    version = DeltaLog(home.source("t").path).latest_version(None)
    home.script.run("INSERT INTO t VALUES (100, 100, 1, 1, TIMESTAMP '2026-01-01')")
    home.declare(sums=_VIEWS["sums"])
    home.stopped_at("slice 2")
    home.run(until_version={"t": version})
    assert any(f"its slices have read t up to version {version + 1}" in said for said in home.said)
    home.script.verify()
    assert (100,) not in home.script.rows("SELECT g FROM sums")


def test_it_is_said_how_far_a_view_is(home: Home) -> None:
    home.declare(sums=_VIEWS["sums"])
    home.stopped_at("slice 2")
    shown = CliRunner().invoke(app, ["status", "--warehouse", str(home.folder)], env={"COLUMNS": "200"})
    assert re.search(r"sums: is built in slices, slice 1, up to [\d.]+ kB of [\d.]+ kB of t: relstate run", shown.output)
