"""A run with nothing to do starts no JVM; whatever might have to be done, Spark looks at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Warehouse, idle_reports
from relstate_dagster.jobs.catalog.entries import Claim
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.engine.instants import utc_now
from tests.epoch.home import FILES, Home
from tests.processes import environment


@pytest.fixture(scope="module")
def home(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(spark, tmp_path_factory.mktemp("idle"))


@pytest.fixture
def own(spark: SparkSession, tmp_path: Path) -> Home:
    return Home(spark, tmp_path)


def test_reports_are_those_of_the_run(home: Home) -> None:
    names = ["sums", "over", "others"]
    project = load_project(home.project)
    found = idle_reports(Warehouse(home.warehouse.root), project, names)
    assert found == list(EpochRunner(home.spark, home.warehouse).run())
    assert found is not None
    assert [report.view for report in found] == ["others", "sums", "over"]
    assert all(report.skipped for report in found)


_IDLE = """
import sys
from relstate_dagster.jobs.api import Warehouse, idle_reports
from relstate_dagster.jobs.declare import load_project
project = load_project(sys.argv[1])
found = idle_reports(Warehouse(sys.argv[2]), project, [view.name for view in project.views])
print(len(found), "pandas" in sys.modules)
"""


def test_it_is_found_out_without_pandas_which_takes_longer_to_import(home: Home) -> None:
    command = [sys.executable, "-c", _IDLE, str(home.project), home.warehouse.root]
    assert subprocess.check_output(command, env=environment(), text=True).split() == ["3", "False"]


def _claimed(home: Home) -> None:
    claim = Claim("x", "run", ("over",), "bringing up to date", "elsewhere", 1, utc_now(), None, "")
    home.warehouse.catalog.update(lambda state: state.with_claim(claim))


def _damaged(home: Home) -> None:
    state = home.warehouse.read()
    version = state.epochs[state.views["sums"].last_epoch or 0].versions["sums"].view_version or 0
    (Path(home.warehouse.target("sums").path) / "_delta_log" / f"{version:020d}.json").write_text("")


def _unreadable(home: Home) -> None:
    """A source whose newest commit cannot be read: the run names it."""
    log = Path(home.warehouse.source_path("other")) / "_delta_log"
    (log / f"{len(list(log.glob('*.json'))):020d}.json").write_text("no commit")


def _with_garbage(home: Home) -> None:
    home.warehouse.catalog.update(lambda state: replace(state, garbage={"views/x": "y"}))


@pytest.mark.parametrize(
    "happens",
    [
        lambda home: home.sql("INSERT INTO t VALUES (3, 3)"),
        lambda home: home.sql("DELETE FROM t WHERE k = 9; UPDATE t SET v = 5 WHERE k = 1"),
        lambda home: home.write("sums", "CREATE MATERIALIZED VIEW sums AS SELECT max(v) AS s FROM p"),
        lambda home: home.write("plain", "CREATE VIEW p AS SELECT k, v + 2 AS v FROM t"),
        lambda home: home.write("sums", FILES["sums"].replace(" AS SELECT", " COMMENT 'all' AS SELECT")),
        lambda home: home.write("new", "CREATE MATERIALIZED VIEW another AS SELECT k FROM t"),
        lambda home: home.write("sources", FILES["sources"].replace("(k INT)", "(k INT, PRIMARY KEY (k))")),
        lambda home: (
            home.write("when", "CREATE MATERIALIZED VIEW late AS SELECT k FROM t WHERE now() > '2020-01-01'") or home.bring()
        ),
        lambda home: home.warehouse.catalog.update(lambda s: s.with_rebuild(s.views["over"].restarted())),
        _claimed,
        _damaged,
        _unreadable,
        _with_garbage,
    ],
    ids=[
        "insert",
        "update",
        "query",
        "plain",
        "comment",
        "new",
        "key",
        "time",
        "rebuild",
        "claim",
        "damage",
        "unreadable",
        "garbage",
    ],
)
def test_whatever_may_be_to_do_is_noticed(own: Home, happens: Callable[[Home], object]) -> None:
    assert own.is_idle()
    happens(own)
    assert not own.is_idle()


def test_what_other_views_read_does_not_count(own: Home) -> None:
    own.sql("INSERT INTO t VALUES (3, 3)")
    assert own.is_idle("others")
    assert own.is_idle("over"), "alone it goes as far as the view that it reads"
    assert not own.is_idle("sums", "over")
    list(EpochRunner(own.spark, own.warehouse).run(["sums"]))
    assert own.is_idle("sums")
    assert not own.is_idle("over"), "the view below it has gone on"
    assert not own.is_idle("no_such_view")


def _run(home: Home) -> subprocess.CompletedProcess[str]:
    """``relstate run`` where there is no Java."""
    where = ["--project", str(home.project), "--warehouse", home.warehouse.root]
    without = {"JAVA_HOME": "/nowhere", "PATH": str(Path(sys.executable).parent)}
    environment = {**os.environ, **without, "PYTHONPATH": str(Path.cwd()), "COLUMNS": "80"}
    command = [sys.executable, "-c", "from relstate_dagster.cli import console_script; console_script()", "run", *where]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_command_line_needs_no_java_then(own: Home) -> None:
    done = _run(own)
    assert (done.returncode, done.stdout.count("unchanged")) == (0, 3), done.stderr
    own.write("others", "CREATE MATERIALIZED VIEW others AS SELECT count(*) + 1 AS n FROM other")
    done = _run(own)
    assert done.returncode != 0
    assert "Java" in done.stderr
