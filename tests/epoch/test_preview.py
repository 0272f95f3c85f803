"""What the next run would do, said beforehand: it does just that."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import Action, EpochRunner, ViewPreview, Warehouse, preview_run, preview_view, sync_project
from relstate_dagster.jobs.declare import load_project
from tests.epoch.home import FILES, Home

_WHOLE = {"others": Action.NOTHING, "sums": Action.NOTHING, "over": Action.NOTHING}

_WATERMARK = "TBLPROPERTIES ('source.watermark' = 'v - 100')"


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Home:
    return Home(spark, tmp_path)


def _looked_at(home: Home) -> dict[str, ViewPreview]:
    found = preview_run(Warehouse(home.warehouse.root), load_project(home.project), most_tasks=2)
    return {one.view: one for one in found}


def _does(home: Home) -> dict[str, Action]:
    return {name: one.action for name, one in _looked_at(home).items()}


def _edited(home: Home) -> None:
    home.write("sums", "CREATE MATERIALIZED VIEW sums AS SELECT max(v) AS s FROM p")


@pytest.mark.parametrize(
    ("happens", "does"),
    [
        (lambda _: None, {}),
        (lambda home: home.sql("INSERT INTO t VALUES (3, 3)"), {"sums": Action.FOLLOW, "over": Action.FOLLOW}),
        (_edited, {"sums": Action.REBUILD, "over": Action.REBUILD}),
        (lambda home: home.write("plain", FILES["plain"] + " WHERE k > 1"), {"sums": Action.REBUILD, "over": Action.REBUILD}),
        (lambda home: home.write("new", "CREATE MATERIALIZED VIEW new AS SELECT s FROM over"), {"new": Action.BUILD}),
        (
            lambda home: home.write("sources", FILES["sources"].replace("(k INT)", "(k INT, PRIMARY KEY (k))")),
            {"others": Action.REBUILD},
        ),
        (lambda home: home.write("sources", FILES["sources"].replace(";", f" {_WATERMARK};", 1)), {}),
    ],
    ids=["nothing", "change", "edit", "plain view", "new view", "key", "watermark"],
)
def test_the_run_does_what_was_said(home: Home, happens: Callable[[Home], object], does: dict[str, Action]) -> None:
    happens(home)
    assert _does(home) == {**_WHOLE, **does}
    before = home.warehouse.read()
    sync_project(home.spark, home.warehouse, load_project(home.project))
    reports = {report.view: report for report in EpochRunner(home.spark, home.warehouse).run()}
    after = home.warehouse.read()
    for name, done in {**_WHOLE, **does}.items():
        assert reports[name].skipped == (done is Action.NOTHING)
        known = before.views.get(name)
        assert (known is not None and known.generation != after.views[name].generation) == (done is Action.REBUILD)
    assert set(_does(home).values()) == {Action.NOTHING}


def test_a_view_that_another_version_has_planned_is_looked_at(home: Home) -> None:
    """Only Spark knows whether it is to be rebuilt; once it has looked, there is nothing to say any more."""
    home.warehouse.catalog.update(lambda state: state.with_view(replace(state.views["sums"], plan_version=0)))
    found = _looked_at(home)["sums"]
    assert found.action is Action.FOLLOW
    assert "another version of relstate has planned it" in found.why
    list(EpochRunner(home.spark, home.warehouse).run())
    assert _does(home) == _WHOLE


@pytest.mark.parametrize(
    ("views", "looked_at"),
    [(["others"], ["others"]), (["over"], ["sums", "over"]), ([], []), (None, ["others", "sums", "over"])],
)
def test_only_what_is_asked_for_and_below_it_is_looked_at(home: Home, views: list[str] | None, looked_at: list[str]) -> None:
    home.sql("INSERT INTO t VALUES (3, 3); INSERT INTO other VALUES (1)")
    found = preview_run(home.warehouse, load_project(home.project), most_tasks=2, views=views)
    assert sorted(one.view for one in found) == sorted(looked_at)
    assert {one.action for one in found} <= {Action.FOLLOW}


def test_reasons_and_sizes(home: Home) -> None:
    _edited(home)
    home.write("others", "CREATE MATERIALIZED VIEW late AS SELECT 1 AS one")
    found = _looked_at(home)
    assert (found["sums"].why, found["over"].why) == ("it was edited", "reads sums, which is rebuilt")
    assert found["sums"].reads.startswith("t ")
    assert found["sums"].seconds is not None, "its first epoch was measured"
    assert found["late"].action is Action.BUILD
    home.write("sums", "CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS s FROM other")
    assert _looked_at(home)["sums"].reads.startswith("other "), "of the new query"
    assert (found["others"].action, found["others"].why) == (
        Action.LEAVE,
        "no file declares it; drop it with relstate run --prune",
    )


def test_what_cannot_be_read_is_said(home: Home) -> None:
    home.sql("INSERT INTO t VALUES (3, 3)")
    source = Path(home.warehouse.source_path("t"))
    source.rename(source.parent / "elsewhere")
    found = _looked_at(home)
    assert found["sums"].action is found["over"].action is Action.FAIL
    assert found["over"].why == "waits for sums, which cannot run"
    assert found["others"].action is Action.NOTHING


def _lines(home: Home, view: str) -> tuple[str, ...]:
    state = home.warehouse.read()
    return preview_view(home.warehouse, state, state.views[view], most_tasks=2).lines


def test_explain_says_what_the_plan_of_the_run_says(home: Home) -> None:
    nothing = ("nothing to do: nothing that it reads has changed",)
    assert _lines(home, "over") == nothing
    home.sql("INSERT INTO t VALUES (3, 3)")
    assert _lines(home, "sums")[0].startswith("read t: ")
    assert _lines(home, "over") == ("changes sums first",)
    home.bring()
    home.warehouse.catalog.update(lambda state: state.with_view(replace(state.views["sums"], plan_version=0)))
    assert [line[:43] for line in _lines(home, "sums")] == ["another version of relstate has planned it:"]
    home.warehouse.catalog.update(lambda state: state.with_rebuild(state.views["sums"].restarted()))
    first, second, *_ = _lines(home, "sums")
    assert first == "rebuilt: a rebuild of it is not complete"
    assert second.startswith("read t: all rows, ")
    assert _lines(home, "over")[0] == "rebuilt: reads sums, which is rebuilt"
    assert _lines(home, "others") == nothing


def test_the_command_line(home: Home) -> None:
    """It needs no Java, and at a terminal ``run`` asks before it rebuilds: a no starts nothing."""
    _edited(home)
    without = {"JAVA_HOME": "/nowhere", "PATH": str(Path(sys.executable).parent)}
    environment = {**os.environ, **without, "PYTHONPATH": str(Path.cwd()), "COLUMNS": "80", "TERM": "xterm"}
    done = subprocess.run(home.command("plan"), env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "sums: it was edited" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "│" in line or "┃" in line), done.stdout
    terminal, its_end = pty.openpty()
    run = subprocess.Popen(home.command("run"), env=environment, stdin=its_end, stderr=its_end, stdout=its_end)
    os.close(its_end)
    os.write(terminal, b"n\n")
    said = b""
    while chunk := _read(terminal):
        said += chunk
    assert run.wait(timeout=300) == 1
    assert b"Go on?" in said, said
    assert b"Java" not in said, "asked before Spark is started"
    done = subprocess.run(home.command("run"), env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "Java" in done.stderr, "where nobody can answer it goes on"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""
