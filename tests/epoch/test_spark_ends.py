"""Spark ends in the middle of an epoch: the run says so, and why, and at what; it never waits for what nobody will say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.run.runner import EpochRunner
from tests.epoch.killed import in_process, run_in_process
from tests.epoch.scripts import Script

_TABLES = "CREATE TABLE t (k INT); CREATE TABLE u (k INT)"
#: Of a row above 0, a text of 1.9 GB, for which a JVM of 1 GB has no room.
_HUGE = "CREATE MATERIALIZED VIEW huge AS SELECT k, IF(k > 0, length(repeat('x', 1900000000 + k)), 0) AS n FROM t"
_SMALL = "CREATE MATERIALIZED VIEW small AS SELECT count(*) AS n FROM u"


#: Nothing is held by the driver, nor committed by it: tasks compute it.
_BY_TASKS = "driver_change_bytes=0,driver_backfill_bytes=0,driver_commit_bytes=0,driver_commit_rows=0"
#: What two views read of a change is read once and held: no task computes with it then, but a thread of the driver.
_SHARED = _SMALL.replace("FROM u", "FROM t")


@pytest.mark.parametrize(
    ("small", "sizing"),
    [
        pytest.param(_SHARED, "", id="in a thread of Spark that hands rows to Python"),
        pytest.param(_SMALL, _BY_TASKS, id="in a task"),
    ],
)
def test_a_view_for_which_there_is_no_memory_ends_the_run_and_others_go_on_by_name(
    spark: SparkSession, script: Script, small: str, sizing: str
) -> None:
    script.run(f"{_TABLES}; {_HUGE}; {small}; INSERT INTO t VALUES (0); REFRESH")
    script.run("INSERT INTO t VALUES (1); INSERT INTO u VALUES (0)")
    ended = run_in_process(script.warehouse.root, RELSTATE_SIZING=sizing)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    for said in ("EnvironmentProblem", "huge", "its memory ran out", "RELSTATE_DRIVER_MEMORY"):
        assert said in ended.stdout, ended.stdout
    assert "left behind" not in ended.stdout, "no view is to blame for what fails while Spark ends"
    assert [report.view for report in EpochRunner(spark, script.warehouse).run(["small"])] == ["small"]
    assert script.rows("SELECT n FROM small") == [(2 if small == _SHARED else 1,)]
    script.run("DELETE FROM t; INSERT INTO t VALUES (0); REFRESH")
    script.verify()


def test_a_view_for_which_there_is_no_memory_is_left_behind_where_spark_survives_it(script: Script) -> None:
    script.run(f"{_TABLES}; {_HUGE}; {_SHARED}; INSERT INTO t VALUES (0); REFRESH; INSERT INTO t VALUES (1)")
    ended = run_in_process(script.warehouse.root, RELSTATE_SIZING=_BY_TASKS)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    for said in ("EpochError: view huge", "memory ran out", "RELSTATE_DRIVER_MEMORY"):
        assert said in ended.stdout, ended.stdout
    assert script.rows("SELECT n FROM small") == [(2,)], "it was brought up to date by the same run"
    script.run("DELETE FROM t; INSERT INTO t VALUES (0); REFRESH")
    script.verify()


@pytest.mark.parametrize("place", ["after_begin", "before_publish"])
def test_a_jvm_that_is_killed_ends_the_run_with_its_reason_and_the_next_one_repairs_it(
    spark: SparkSession, script: Script, place: str
) -> None:
    script.run(f"{_TABLES}; {_SMALL}; INSERT INTO u VALUES (1), (2); REFRESH; DELETE FROM u WHERE k = 1")
    ended = run_in_process(script.warehouse.root, RELSTATE_JVM_ENDS_AT=place)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "Spark has ended" in ended.stdout, ended.stdout
    assert "it was killed" in ended.stdout, ended.stdout
    script.run("REFRESH")
    script.verify()
    assert script.rows("SELECT n FROM small") == [(1,)]


def test_a_statement_for_which_there_is_no_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELSTATE_DRIVER_MEMORY", "1g")
    query = "SELECT length(repeat('x', 1900000000 + CAST(id AS INT))) AS n FROM range(1)"
    ended = in_process(query, tmp_path / "warehouse", "")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    said = " ".join((ended.stdout + ended.stderr).split())
    assert "Spark has ended (its memory ran out)" in said


_STOPPED = """
from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run
from relstate_dagster.jobs.engine import SparkSettings, create_session

spark = create_session(SparkSettings(master="local[1]", driver_memory="1g"))
error = RuntimeError('Cannot invoke "DAGScheduler.cleanupQueryJobs(long)" because it is null')
assert ends_the_run(error) is None
spark.sparkContext._jsc.sc().stop()
assert "Spark has ended" in str(ends_the_run(error))
print("as it should be")
"""


def test_whatever_else_fails_while_spark_ends_is_no_views_fault() -> None:
    done = subprocess.run([sys.executable, "-c", _STOPPED], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "as it should be", done.stderr
