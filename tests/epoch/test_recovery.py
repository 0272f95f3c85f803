"""A run killed for real at any point is repaired by the next one, which gives what an undisturbed run gives."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib.errors import EpochError
from tests.epoch.killed import run_in_process, two_runs_at_once
from tests.epoch.scripts import Script

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE TABLE m (g INT, s STRING);
INSERT INTO t SELECT id, id % 3, id FROM range(12);
INSERT INTO m VALUES (0, 'a'), (0, 'a'), (1, 'b');
CREATE MATERIALIZED VIEW a AS SELECT g, count(*) AS n, min(v) AS lo FROM t GROUP BY g;
CREATE MATERIALIZED VIEW b AS SELECT a.n, m.s FROM a LEFT JOIN m ON a.g = m.g;
"""
_CHANGES = """
UPDATE t SET g = g + 1, v = v * 10 WHERE k < 4;
DELETE FROM t WHERE k = 11;
INSERT INTO m VALUES (0, 'a'), (3, 'd');
DELETE FROM m WHERE g = 1;
"""
_VIEWS = {"a": "SELECT g, n, lo FROM a", "b": "SELECT n, s FROM b"}


@pytest.fixture(scope="module")
def before_the_crash(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    Script(spark, folder / "warehouse").run(_SETUP + _CHANGES)
    return folder / "warehouse"


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, before_the_crash: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    copy = tmp_path_factory.mktemp("undisturbed") / "warehouse"
    shutil.copytree(before_the_crash, copy)
    script = Script(spark, copy)
    script.run("REFRESH")
    script.verify()
    return {name: script.rows(query) for name, query in _VIEWS.items()}


#: Between commits of each kind. By which a process dies with its JVM: before the last one, and every night at each.
_PLACES = ("after_begin", "before_state_commit", "after_state_commit", "before_complete")
_WITH_ITS_JVM = [
    pytest.param(place, "own", marks=() if place == "before_complete" else pytest.mark.nightly) for place in _PLACES
]


@pytest.mark.parametrize(
    ("failpoint", "jvm"),
    # While publishing writes a file, the JVM has to die as well: it would finish.
    [*((place, "lent") for place in _PLACES), *_WITH_ITS_JVM, ("inside_publish", "own")],
    indirect=["jvm"],
)
def test_the_next_run_repairs_a_killed_one(
    spark: SparkSession, before_the_crash: Path, undisturbed: dict, tmp_path: Path, failpoint: str, jvm: SparkSession | None
) -> None:
    folder = tmp_path / "warehouse"
    shutil.copytree(before_the_crash, folder)
    killed = run_in_process(folder, failpoint, jvm)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr

    script = Script(spark, folder)
    # A reader sees the last complete epoch until the next run has completed one.
    assert script.rows("SELECT count(*) FROM a") == [(3,)]
    script.run("REFRESH")
    assert {name: script.rows(query) for name, query in _VIEWS.items()} == undisturbed
    script.verify()
    # Nothing is left over: the next run has nothing to do.
    assert all(report.skipped for report in EpochRunner(spark, script.warehouse).run())


def test_of_two_runs_at_once_one_goes_on_and_neither_loses_anything(
    spark: SparkSession, before_the_crash: Path, undisturbed: dict, tmp_path: Path, jvm: SparkSession | None
) -> None:
    folder = tmp_path / "warehouse"
    shutil.copytree(before_the_crash, folder)
    outputs = two_runs_at_once(folder, jvm)
    assert sum("skipped" in output for output in outputs) == 1, "the second has waited, and found nothing to do"
    script = Script(spark, folder)
    assert {name: script.rows(query) for name, query in _VIEWS.items()} == undisturbed


def test_a_warehouse_that_is_held_says_by_whom(spark: SparkSession, before_the_crash: Path, tmp_path: Path) -> None:
    folder = tmp_path / "warehouse"
    shutil.copytree(before_the_crash, folder)
    warehouse = Warehouse(folder)
    waited: list[str] = []
    with Claims(Warehouse(folder), "the-other-run", "bringing up to date") as other:
        other.take(["a"])
        runner = EpochRunner(spark, warehouse, patience=Patience(0.2, waited.append))
        said = r"process \d+ on .* \(run the-other-run\), which is bringing up to date a"
        for views in (None, ["a"]):
            with pytest.raises(EpochError, match=f"{said}, is still at work"):
                list(runner.run(views))
        assert re.fullmatch(f"waiting for {said}", waited[0])
    list(runner.run())
