"""Views of a warehouse that another version of the planner has planned."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, idle_reports
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import Project
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.engine.spark_release import spark_release
from relstate_dagster.jobs.plan.plan_version import PLAN_VERSION
from relstate_dagster.jobs.run.freshness import views_behind
from relstate_dagster.jobs.view_epoch import view_epoch
from tests.epoch.scripts import Script

_BEGIN = """
CREATE TABLE t (k INT, v INT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);
CREATE MATERIALIZED VIEW few AS SELECT k, v FROM t WHERE v > 1;
CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM few;
CREATE MATERIALIZED VIEW other AS SELECT v, count(*) AS n FROM t GROUP BY v;
CREATE MATERIALIZED VIEW wrong AS SELECT k, v FROM t WHERE v > 2;
CREATE MATERIALIZED VIEW placed AS SELECT k, v, lag(v) OVER (ORDER BY k) AS before FROM t;
REFRESH;
"""


def _as_of_an_earlier_version(warehouse: Warehouse, view: str, planned_as: str | None = None) -> None:
    """Leave a view as an earlier planner did, by mistake with another query's plan."""

    def earlier(state: CatalogState) -> CatalogState:
        entry = state.views[view]
        planned = entry.planned if planned_as is None else state.views[planned_as].planned
        return state.with_view(replace(entry, plan_version=0, planned=planned))

    warehouse.catalog.update(earlier)


def _as_of_another_spark(warehouse: Warehouse, view: str, planned_as: str) -> None:
    """Leave a view as if an older Spark had analysed it, with another query's plan."""

    def earlier(state: CatalogState) -> CatalogState:
        planned = state.views[planned_as].planned
        return state.with_view(replace(state.views[view], planned_on_spark="3.9", planned=planned))

    warehouse.catalog.update(earlier)


def _stored_as_before(warehouse: Warehouse, view: str) -> None:
    """A plan of a version before 3: aggregate calls name no kind, windows no reach."""

    def without(value: dict[str, Any]) -> dict[str, Any]:
        later = {"AggCall": "kind", "Window": "reach"}.get(value.get("node", ""))
        return {k: v for k, v in value.items() if k != later}

    text = json.dumps(json.loads(warehouse.read().views[view].planned.to_json(), object_hook=without))
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    Path(warehouse.catalog.plans.path, f"{digest}.json").write_text(text)
    planned = warehouse.catalog.plans.planned(digest)
    warehouse.catalog.update(lambda state: state.with_view(replace(state.views[view], planned=planned)))


def _rows(script: Script) -> list[object]:
    return [script.rows("SELECT * FROM few"), script.rows("SELECT * FROM counted")]


def test_a_view_whose_plan_was_wrong_is_rebuilt_by_the_next_run_with_those_over_it(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody asks for it, and no source has moved."""
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_BEGIN)
    _as_of_an_earlier_version(script.warehouse, "few", planned_as="wrong")
    before = script.warehouse.read().views
    assert views_behind(script.warehouse, before) == {
        "few": "was planned by another version of relstate",
        "counted": "reads few, which was planned by another version of relstate",
    }
    script.run("REFRESH; VERIFY")
    after = script.warehouse.read().views
    rebuilt = {name for name in after if after[name].generation != before[name].generation}
    assert rebuilt == {"few", "counted"}
    assert {view.plan_version for view in after.values()} == {PLAN_VERSION}
    script.run("INSERT INTO t VALUES (4, 2); REFRESH; VERIFY")
    assert _rows(script) == [[(2, 2), (3, 3), (4, 2)], [(3,)]]
    assert not views_behind(script.warehouse, after)


def test_a_view_planned_on_another_spark_is_planned_again(spark: SparkSession, tmp_path: Path) -> None:
    """The next run rebuilds a view with another plan, and views over it."""
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_BEGIN)
    _as_of_another_spark(script.warehouse, "few", planned_as="wrong")
    _as_of_another_spark(script.warehouse, "other", planned_as="other")
    before = script.warehouse.read().views
    assert views_behind(script.warehouse, ["few", "other", "wrong"]) == {
        "few": "was planned by Spark 3.9",
        "other": "was planned by Spark 3.9",
    }
    script.run("INSERT INTO t VALUES (4, 2); REFRESH; VERIFY")
    after = script.warehouse.read().views
    assert {name for name in after if after[name].generation != before[name].generation} == {"few", "counted"}
    assert {view.planned_on_spark for view in after.values()} == {spark_release()}
    assert _rows(script) == [[(2, 2), (3, 3), (4, 2)], [(3,)]]
    assert not views_behind(script.warehouse, after)


def test_an_epoch_of_a_run_that_died_under_an_earlier_version_is_computed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named what a commit builds on in another way."""
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_BEGIN)

    def dies(place: str) -> None:
        if place == "after_state_commit":
            raise SystemExit(place)

    script.run("INSERT INTO t VALUES (4, 4)")
    with monkeypatch.context() as dying:
        dying.setattr(failpoints, "reached", dies)
        dying.setattr(view_epoch, "_digest", lambda inputs, _base: f"{inputs.view.name} as before")
        with pytest.raises(SystemExit):
            list(EpochRunner(spark, script.warehouse).run())
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT n FROM counted") == [(3,)]
    script.run("DELETE FROM t WHERE k = 2; REFRESH; VERIFY")


def test_a_view_that_is_planned_as_before_keeps_its_state(spark: SparkSession, tmp_path: Path) -> None:
    """It is looked at once, with all kinds of sources moved or not; then a run finds nothing to do again."""
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_BEGIN)
    before = script.warehouse.read().views
    for view in before:
        _as_of_an_earlier_version(script.warehouse, view)
        _stored_as_before(script.warehouse, view)
    project = Project()
    assert idle_reports(script.warehouse, project, list(before)) is None
    script.run("REFRESH; VERIFY")
    after = script.warehouse.read().views
    assert {name: view.generation for name, view in after.items()} == {name: v.generation for name, v in before.items()}
    assert {view.plan_version for view in after.values()} == {PLAN_VERSION}
    assert {name: view.planned for name, view in after.items()} == {name: view.planned for name, view in before.items()}
    assert idle_reports(script.warehouse, project, list(before)) is not None
    script.run("INSERT INTO t VALUES (4, 2); REFRESH; VERIFY")


def test_a_source_that_is_away_meanwhile_costs_no_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    """Nor is an epoch computed by the old plan: it is looked at once the source is back."""
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_BEGIN)
    script.run("CREATE TABLE u (k INT); CREATE MATERIALIZED VIEW of_u AS SELECT count(*) AS n FROM u; REFRESH")
    before = script.warehouse.read().views
    for view in before:
        _as_of_an_earlier_version(script.warehouse, view)
    source, away = Path(script.warehouse.source_path("t")), tmp_path / "away"
    source.rename(away)
    script.run("INSERT INTO u VALUES (1)")
    script.error("REFRESH")
    assert script.rows("SELECT * FROM of_u") == [(1,)]
    state = script.warehouse.read()
    assert not state.rebuilds
    assert {name: view.plan_version for name, view in state.views.items() if "t" in view.reads} == dict.fromkeys(
        ("few", "other", "wrong", "placed"), 0
    )
    away.rename(source)
    script.run("INSERT INTO t VALUES (4, 2); REFRESH; VERIFY")
    after = script.warehouse.read().views
    assert {name: view.generation for name, view in after.items()} == {name: v.generation for name, v in before.items()}
    assert {view.plan_version for view in after.values()} == {PLAN_VERSION}


def test_one_that_cannot_be_planned_any_more_is_left_behind(spark: SparkSession, tmp_path: Path) -> None:
    """With the reason; others go on."""
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_BEGIN)

    def earlier(state: CatalogState) -> CatalogState:
        query = "SELECT k, v FROM t WHERE v > 1 AND gone > 1"
        return state.with_view(replace(state.views["few"], plan_version=0, query=query))

    script.warehouse.catalog.update(earlier)
    script.run("INSERT INTO t VALUES (4, 2)")
    assert "gone" in str(script.error("REFRESH"))
    assert script.rows("SELECT v, n FROM other") == [(1, 1), (2, 2), (3, 1)]
    assert not script.warehouse.read().rebuilds
    # A view alone, as Dagster and the command line run it, is looked at as well.
    _as_of_an_earlier_version(script.warehouse, "wrong", planned_as="few")
    list(EpochRunner(spark, script.warehouse).run(["wrong"]))
    assert script.rows("SELECT k FROM wrong") == [(3,)]
