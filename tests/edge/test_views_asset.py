"""The multi-asset against a runner that only tells what it was asked: no Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dagster import AssetCheckKey, AssetKey, AssetSelection, DagsterInstance, Definitions, materialize

from relstate_dagster.assets.specs import MATCHES_FULL_RECOMPUTE, STREAM_KEY_UNIQUE, check_specs, source_specs, view_specs
from relstate_dagster.assets.views import build_views_asset
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.epoch.reports import VerifyReport, ViewReport
from relstate_dagster.state_lib.errors import DeclarationError

PROJECT = build_project(
    parse_text(
        """
        CREATE TABLE flights (id INT, carrier STRING COMMENT 'code', PRIMARY KEY (id)) COMMENT 'what flew';
        CREATE MATERIALIZED VIEW per_carrier COMMENT 'Counts.'
          TBLPROPERTIES ('dagster.group' = 'air', 'dagster.owners' = 'ops@example.com', 'dagster.tags' = 'tier=gold')
          AS SELECT carrier, count(*) AS flights FROM flights GROUP BY carrier;
        CREATE VIEW big AS SELECT * FROM per_carrier WHERE flights > 10;
        CREATE MATERIALIZED VIEW biggest AS SELECT max(flights) AS most FROM big JOIN airlines USING (carrier);
        """,
        "p.sql",
    )
)


def report(view: str, epoch: int = 7) -> ViewReport:
    return ViewReport(
        view,
        epoch,
        "incremental",
        None,
        rows_in={"flights": (5, 2)},
        rows_inserted=3,
        rows_deleted=1,
        state_rows_written=9,
        seconds={"plan": 0.25, "publish": 0.5},
        source_versions={"flights": 4},
        view_version=2,
        plan_text="scan flights",
    )


class StubRunner:
    def __init__(self, reports=None, wrong=()):
        self.reports, self.wrong, self.asked = reports, wrong, []

    def run(self, views, *, full_refresh=(), run_id=None):
        self.asked.append(list(views))
        yield from self.reports or [report(view) for view in views]

    def verify(self, views):
        return [VerifyReport(view, view not in self.wrong, int(view in self.wrong), 0, epoch=7, seconds=0.1) for view in views]

    def stream_key_unique(self, view):
        return 0


class StubWarehouse:
    def __init__(self, runner, idle=None):
        self._runner, self._idle = runner, idle

    def idle_reports(self, project, names):
        return self._idle

    def runner(self, project, on_wait=None):
        assert self._idle is None, "Spark is not started for nothing"
        return self._runner

    def view_path(self, name):
        return f"/nowhere/{name}"


def run(runner, idle=None, **kwargs):
    with DagsterInstance.ephemeral() as instance:
        return materialize(
            [build_views_asset(PROJECT), *source_specs(PROJECT)],
            resources={"warehouse": StubWarehouse(runner, idle)},
            instance=instance,
            **kwargs,
        )


def metadata_of(result, view):
    found = [e for e in result.get_asset_materialization_events() if e.asset_key == AssetKey(view)]
    return {name: value.value for name, value in found[0].materialization.metadata.items()}


def test_specs_carry_what_was_declared():
    per_carrier, biggest = view_specs(PROJECT)
    assert per_carrier.group_name == "air"
    assert list(per_carrier.owners) == ["ops@example.com"]
    assert per_carrier.tags["tier"] == "gold"
    assert per_carrier.description == "Counts."
    assert {dep.asset_key.to_user_string() for dep in biggest.deps} == {"per_carrier", "airlines"}
    assert {spec.key.to_user_string() for spec in source_specs(PROJECT)} == {"flights", "airlines"}
    lineage = per_carrier.metadata["dagster/column_lineage"].deps_by_column
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in lineage["carrier"]] == [("flights", "carrier")]
    (flights, _) = source_specs(PROJECT)
    assert [column.description for column in flights.metadata["dagster/column_schema"].columns] == [None, "code"]
    assert len(check_specs(PROJECT)) == 4


def test_wrong_tags_are_refused():
    project = build_project(
        parse_text("CREATE MATERIALIZED VIEW v TBLPROPERTIES ('dagster.tags' = 'gold') AS SELECT 1 AS a", "p.sql")
    )
    with pytest.raises(DeclarationError, match=r"'dagster.tags' holds 'gold'"):
        view_specs(project)


def test_a_run_is_one_epoch_over_all_views_with_its_numbers():
    runner = StubRunner()
    result = run(runner)
    assert result.success
    assert runner.asked == [["per_carrier", "biggest"]]
    numbers = metadata_of(result, "per_carrier")
    assert {name: numbers[name] for name in ("epoch", "rows in +", "rows in −", "rows out +", "rows out −")} == {
        "epoch": 7,
        "rows in +": 5,
        "rows in −": 2,
        "rows out +": 3,
        "rows out −": 1,
    }
    assert numbers["seconds"] == 0.75
    (inputs,) = [record.data for record in numbers["inputs"].records]
    assert inputs == {"input": "flights", "version": "4", "rows +": 5, "rows −": 2}
    assert "scan flights" in numbers["plan"]
    assert len(result.get_asset_check_evaluations()) == 4


def test_where_nothing_has_changed_spark_is_not_started():
    idle = [replace(report(view), skipped=True) for view in ("per_carrier", "biggest")]
    result = run(StubRunner(), idle)
    assert result.success
    assert len(result.get_asset_materialization_events()) == 2
    assert not result.get_asset_check_evaluations()


def test_a_subset_runs_only_the_views_asked_for():
    runner = StubRunner()
    result = run(runner, selection=AssetSelection.assets("biggest").without_checks())
    assert runner.asked == [["biggest"]]
    assert [e.asset_key.to_user_string() for e in result.get_asset_materialization_events()] == ["biggest"]
    assert not result.get_asset_check_evaluations()


def test_an_epoch_that_another_run_left_is_told_of_too():
    reports = [report("per_carrier", epoch=6), report("biggest", epoch=6), report("biggest", epoch=7)]
    result = run(StubRunner(reports), selection=AssetSelection.assets("biggest").without_checks())
    said = [
        (e.asset_key.to_user_string(), e.materialization.metadata["epoch"].value)
        for e in result.get_asset_materialization_events()
    ]
    assert sorted(said) == [("biggest", 6), ("biggest", 7), ("per_carrier", 6)]


def test_checks_run_alone_and_fail_on_a_difference():
    runner = StubRunner(wrong=("biggest",))
    selection = AssetSelection.checks(
        AssetCheckKey(AssetKey("biggest"), MATCHES_FULL_RECOMPUTE),
        AssetCheckKey(AssetKey("biggest"), STREAM_KEY_UNIQUE),
    )
    result = run(runner, selection=selection)
    assert runner.asked == []
    assert {e.check_name: e.passed for e in result.get_asset_check_evaluations()} == {
        MATCHES_FULL_RECOMPUTE: False,
        STREAM_KEY_UNIQUE: True,
    }


def test_definitions_of_the_project_are_valid():
    Definitions.validate_loadable(Definitions(assets=[build_views_asset(PROJECT)], resources={"warehouse": object()}))
