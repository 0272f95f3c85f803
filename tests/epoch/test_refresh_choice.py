"""``auto`` recomputes a view where past epochs say that its change would take longer."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.costs import Costs, EpochCost
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.run.preview import Action, preview_run
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from tests.epoch.killed import run_in_process
from tests.epoch.scripts import Script

_TABLE = "CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));"
_ROWS = "INSERT INTO t SELECT id, id % 3, id FROM range(12);"
_MATERIALIZED = """
CREATE MATERIALIZED VIEW leaf AS SELECT g, count(*) AS n, min(v) AS lo FROM t GROUP BY g;
CREATE MATERIALIZED VIEW stays TBLPROPERTIES ('refresh.policy' = 'incremental') AS SELECT k, v FROM t WHERE g = 1;
CREATE MATERIALIZED VIEW expires TBLPROPERTIES ('state.ttl' = '1 day') AS SELECT g, max(v) AS hi FROM t GROUP BY g;
CREATE MATERIALIZED VIEW below AS SELECT g, sum(v) AS s FROM t GROUP BY g;
CREATE MATERIALIZED VIEW above AS SELECT max(s) AS most FROM below;
"""
_SETUP, _DECLARED = _TABLE + _ROWS + _MATERIALIZED, _TABLE + _MATERIALIZED
_CHANGE = "UPDATE t SET g = g + 1, v = v * 10 WHERE k < 4; DELETE FROM t WHERE k = 11"
_VIEWS = ("leaf", "stays", "expires", "below", "above")
_DEAR, _CHEAP = EpochCost(1_000_000, 90.0), EpochCost(100_000, 1.0)


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Views of which the catalog knows that a change of about any size takes long, and another change."""
    folder = tmp_path_factory.mktemp("before") / "warehouse"
    script = Script(spark, folder)
    script.run(_SETUP)
    state = script.warehouse.read()
    for name in _VIEWS:
        state = state.with_view(replace(state.views[name], costs=Costs(_CHEAP, dict.fromkeys(range(12), (_DEAR, _DEAR)))))
    script.warehouse.catalog.write(state)
    script.run(_CHANGE)
    return folder


def epoch(script: Script, spark: SparkSession) -> dict[str, ViewReport]:
    reports = list(EpochRunner(spark, script.warehouse).run())
    script.verify()
    # The first of each view: a run that repairs an epoch goes on with one of its own.
    return {report.view: report for report in reversed(reports)}


def test_views_are_recomputed_where_that_is_cheaper(spark: SparkSession, before: Path, tmp_path: Path) -> None:
    script = Script(spark, shutil.copytree(before, tmp_path / "warehouse"))
    generation = script.warehouse.read().views["leaf"].generation
    project = build_project(parse_text(_DECLARED, "p.sql"))
    looked_at = {one.view: one for one in preview_run(script.warehouse, project, most_tasks=2)}
    first = epoch(script, spark)
    assert {name: report.strategy for name, report in first.items()} == {
        "leaf": "full",
        "stays": "incremental",  # by its refresh.policy
        "expires": "incremental",  # recomputed it would have what it had lost
        "below": "full",
        "above": "full",
    }
    reason = str(first["leaf"].reason)
    assert {name: one.action for name, one in looked_at.items()} == {
        **dict.fromkeys(("leaf", "below"), Action.RECOMPUTE),
        **dict.fromkeys(("stays", "expires"), Action.FOLLOW),
        "above": Action.FOLLOW,  # how much changes in a view below is not known yet
    }
    assert looked_at["leaf"].why == reason, "said before the run as after it"
    assert looked_at["leaf"].lines[0].startswith("read t: all rows, "), "explain has the steps of the recomputation"
    assert reason.startswith("recomputed: past epochs say that")
    assert "of changes take 90.0 s" in reason
    view = script.warehouse.read().views["leaf"]
    assert (view.strategy, len(view.epochs)) == ("incremental", 2)
    assert view.generation == generation, "and its change feed has the rows that changed"
    assert view.unfilled
    full = view.costs.full
    assert full is not None
    assert full != _CHEAP
    # What it takes now is known better, and is less than it seemed.
    script.warehouse.catalog.write(
        script.warehouse.read().with_view(replace(view, costs=Costs(full, {30: (EpochCost(10**9, 0.01),) * 2})))
    )
    for line in ("state is filled", ""):
        script.run("UPDATE t SET v = v + 1 WHERE k = 5")
        report = epoch(script, spark)["leaf"]
        assert report.strategy == "incremental"
        assert report.rows_in == {"t": (1, 1)}
        assert any(line in step for step in report.stages if step.startswith("recompute")) == bool(line)
    assert len(script.warehouse.read().views["leaf"].costs.changes) == 2, "and is learnt from"


def test_a_killed_epoch_that_recomputes_a_view_is_repaired(
    spark: SparkSession, before: Path, tmp_path: Path, jvm: SparkSession | None
) -> None:
    script = Script(spark, shutil.copytree(before, tmp_path / "warehouse"))
    killed = run_in_process(script.warehouse.root, "after_state_commit", jvm)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    reports = epoch(script, spark)
    assert {name for name, report in reports.items() if report.strategy == "full"} == {"leaf", "below", "above"}


def test_what_a_change_is_expected_to_take() -> None:
    costs = Costs().after(EpochCost(1_000_000, 10.0), full=True)
    assert costs.of_all(2_000_000) == 20.0
    assert costs.of_change(1000) is None, "nothing is known of any change"
    assert costs.cheaper_in_full(1_000_000, lambda: 1_000_000) is None
    costs = costs.after(EpochCost(1000, 2.0), full=False).after(EpochCost(100_000, 82.0), full=False)
    assert costs.of_change(50_000) is None, "and nothing is made of one"
    costs = costs.after(EpochCost(100_000, 900.0), full=False)
    assert costs.of_change(50_000) == pytest.approx(42.0)
    assert costs.of_change(400_000) == pytest.approx(322.0)
    assert costs.of_change(400_001) is None, "that is more than any change can tell of"
    assert costs.cheaper_in_full(40_000, lambda: 1_000_000) is None, "34 s may be 10 s of work in a fresh process"
    assert costs.cheaper_in_full(50_000, lambda: 1_000_000) == (
        "past epochs say that 50 kB of changes take 42.0 s, and all 1 MB 10.0 s"
    )
    assert Costs.from_dict(costs.to_dict()) == costs


def test_what_a_change_once_took_is_forgotten_after_a_while() -> None:
    costs = Costs(EpochCost(1000, 1.0), {10: (EpochCost(500, 90.0),) * 2})
    times = 0
    while costs.cheaper_in_full(500, lambda: 1000) is not None:
        costs, times = costs.used(500), times + 1
    assert times == 8
    assert costs.changes == {}
