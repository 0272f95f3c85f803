"""A view that cannot be planned after an edit is left behind, alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, sync_project
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.state_lib.errors import RelstateError
from tests.epoch.home import Home
from tests.epoch.scripts import Script
from tests.lent_jvm import lent

_EDITED = "CREATE MATERIALIZED VIEW sums AS SELECT sum(v) AS total FROM p"


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Home:
    home = Home(spark, tmp_path)
    home.write("above", "CREATE MATERIALIZED VIEW above AS SELECT s + 1 AS t FROM over")
    home.bring()
    return home


def _run(home: Home) -> tuple[dict[str, str | None], RelstateError | None]:
    sync_project(home.spark, home.warehouse, load_project(home.project))
    problems: dict[str, str | None] = {}
    try:
        for report in EpochRunner(home.spark, home.warehouse).run():
            problems[report.view] = report.problem
    except RelstateError as error:
        return problems, error
    return problems, None


def _mended(home: Home) -> None:
    assert _run(home)[1] is None
    script = Script(home.spark, home.warehouse.root)
    script.run("INSERT INTO t VALUES (9, 9); REFRESH")
    script.verify()
    assert home.is_idle()


def test_an_edit_below(home: Home) -> None:
    script = Script(home.spark, home.warehouse.root)
    before = script.rows("SELECT * FROM above")
    home.write("sums", _EDITED)
    script.run("INSERT INTO t VALUES (3, 3); INSERT INTO other VALUES (1)")
    for _ in range(2):
        problems, error = _run(home)
        assert "`s` cannot be resolved" in str(problems["over"])
        assert problems["above"] == "waits for over, which was left behind"
        assert (problems["sums"], problems["others"]) == (None, None)
        assert "`s` cannot be resolved" in str(error)
    assert script.rows("SELECT total FROM sums") == [(9,)]
    assert script.rows("SELECT n FROM others") == [(1,)]
    assert script.rows("SELECT * FROM above") == before
    assert script.warehouse.read().views["over"].problem is not None
    home.write("over", "CREATE MATERIALIZED VIEW over AS SELECT total AS s FROM sums WHERE total > 1")
    _mended(home)
    assert script.rows("SELECT t FROM above") == [(20,)]


def test_an_edit_below_that_is_taken_back(home: Home) -> None:
    home.write("sums", _EDITED)
    assert _run(home)[1] is not None
    home.write("sums", "CREATE MATERIALIZED VIEW sums AS SELECT sum(v) AS s FROM p")
    _mended(home)


def test_an_edit_of_the_view_itself_and_of_a_plain_view(home: Home) -> None:
    home.write("over", "CREATE MATERIALIZED VIEW over AS SELECT nothing FROM sums")
    problems, error = _run(home)
    assert "`nothing` cannot be resolved" in str(problems["over"])
    assert "`nothing` cannot be resolved" in str(error)
    home.write("over", "CREATE MATERIALIZED VIEW over AS SELECT s FROM sums")
    home.write("plain", "CREATE VIEW p AS SELECT k FROM t")
    problems, _ = _run(home)
    assert "`v` cannot be resolved" in str(problems["sums"])
    assert problems["over"] == "waits for sums, which was left behind"
    assert problems["others"] is None
    home.write("plain", "CREATE VIEW p AS SELECT k, v FROM t")
    _mended(home)


def test_the_command_line_says_so_and_exits_with_1(home: Home) -> None:
    home.write("sums", _EDITED)
    environment = {**os.environ, **lent(home.spark)}
    command = home.command("run", "--yes", may_borrow=True)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "`s` cannot be resolved" in " ".join((done.stdout + done.stderr).split())
    state = home.warehouse.read()
    assert "sums" not in state.rebuilds
    assert state.views["over"].problem is not None
