"""The multi-asset against a runner that only tells what it was asked: no Spark."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from dagster import (
    AssetCheckKey,
    AssetKey,
    AssetSelection,
    AutomationCondition,
    DagsterInstance,
    DagsterInvalidConfigError,
    Definitions,
    asset,
    evaluate_automation_conditions,
    materialize,
)

from relstate_dagster import when_views_change
from relstate_dagster.assets.metadata import EPOCH_METADATA, epoch_metadata
from relstate_dagster.assets.specs import check_specs, project_assets
from relstate_dagster.assets.views import VERIFY_TAG, build_views_asset
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.declare.checks import MATCHES_FULL_RECOMPUTE, STREAM_KEY_UNIQUE
from relstate_dagster.jobs.inspect.published_keys import KeyReport
from relstate_dagster.jobs.view_epoch.reports import VerifyReport, ViewReport
from relstate_dagster.jobs.view_epoch.shown_rows import ShownRows
from relstate_dagster.state_lib.errors import DeclarationError

SQL = """
CREATE TABLE flights (id INT, carrier STRING COMMENT 'code', PRIMARY KEY (id)) COMMENT 'what flew';
CREATE MATERIALIZED VIEW per_carrier COMMENT 'Counts.'
  TBLPROPERTIES ('dagster.group' = 'air', 'dagster.owners' = 'ops@example.com', 'dagster.tags' = 'tier=gold')
  AS SELECT carrier, count(*) AS flights FROM flights GROUP BY carrier;
CREATE VIEW big AS SELECT * FROM per_carrier WHERE flights > 10;
CREATE MATERIALIZED VIEW biggest AS SELECT max(flights) AS most FROM big JOIN airlines USING (carrier);
"""
PROJECT = build_project(parse_text(SQL, "p.sql"))
ASSETS = project_assets(PROJECT)


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
        picture="<svg/>",
    )


class StubRunner:
    def __init__(self, reports=None, wrong=()):
        self.reports, self.wrong, self.asked = reports, wrong, []

    def run(self, views, *, run_id=None, **config):
        self.asked.append(list(views))
        self.config = config
        yield from self.reports or [report(view) for view in views]

    def verify(self, views, *, sample=None):
        return [VerifyReport(view, view not in self.wrong, int(view in self.wrong), 0, epoch=7, seconds=0.1) for view in views]

    def stream_key_unique(self, versions):
        self.looked_at = versions
        return [KeyReport(view, version or 2, int(view in self.wrong)) for view, version in versions.items()]


class StubWarehouse:
    def __init__(self, runner, idle=None):
        self._runner, self._idle = runner, idle

    def idle_reports(self, project, names, *, full_refresh, until_version):
        return None if full_refresh else self._idle

    def runner(self, project, tell=None, *, views=(), full_refresh=()):
        assert self._idle is None, "Spark is not started for nothing"
        return self._runner

    def view_path(self, name):
        return f"/nowhere/{name}"


def run(runner, idle=None, **kwargs):
    with DagsterInstance.ephemeral() as instance:
        return materialize(
            [build_views_asset(ASSETS), *ASSETS.sources],
            resources={"warehouse": StubWarehouse(runner, idle)},
            instance=instance,
            **kwargs,
        )


def metadata_of(result, view):
    found = [e for e in result.get_asset_materialization_events() if e.asset_key == AssetKey(view)]
    return {name: value.value for name, value in found[0].materialization.metadata.items()}


def test_specs_carry_what_was_declared():
    per_carrier, biggest = ASSETS.views.values()
    assert per_carrier.group_name == "air"
    assert list(per_carrier.owners) == ["ops@example.com"]
    assert per_carrier.tags["tier"] == "gold"
    assert per_carrier.description == "Counts."
    assert {dep.asset_key.to_user_string() for dep in biggest.deps} == {"per_carrier", "airlines"}
    assert {spec.key.to_user_string() for spec in ASSETS.sources} == {"flights", "airlines"}
    lineage = per_carrier.metadata["dagster/column_lineage"].deps_by_column
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in lineage["carrier"]] == [("flights", "carrier")]
    (flights, _) = ASSETS.sources
    assert [column.description for column in flights.metadata["dagster/column_schema"].columns] == [None, "code"]
    assert len(check_specs(ASSETS)) == 4


def test_wrong_tags_are_refused():
    project = build_project(
        parse_text("CREATE MATERIALIZED VIEW v TBLPROPERTIES ('dagster.tags' = 'gold') AS SELECT 1 AS a", "p.sql")
    )
    with pytest.raises(DeclarationError, match=r"'dagster.tags' holds 'gold'"):
        project_assets(project)


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
    assert {check.check_name for check in result.get_asset_check_evaluations()} == {STREAM_KEY_UNIQUE}


def test_an_epoch_says_what_the_reference_says_in_its_order():
    whole = replace(
        report("per_carrier"),
        seconds={"plan": 0.1, "compute_and_commit": 2.4555947989999822, "publish": 0.5, "compact": 0.0},
        late_rows=1,
        malformed_records=2,
        advice=("an index",),
        remarks=("a file",),
        is_backfill=True,
        changed=ShownRows(("±", "carrier"), (("+", "A|B"), ("−", None))),
        state_rows=40,
        state_bytes=1_234_567,
        spark_jobs=3,
        of_full=0.123456,
    )
    of_table = {
        "dagster/row_count": 3,
        "dagster/uri": "/w/views/v",
        "dagster/column_schema": None,
        "dagster/column_lineage": None,
    }
    found = epoch_metadata(whole, of_table)
    assert list(found) == list(EPOCH_METADATA)
    assert (found["strategy"], found["seconds: compute and commit"]) == ("backfill", 2.456)
    assert (found["share of a full recompute"], found["state MB"], found["spark jobs"]) == (0.123, 1.235, 3)
    assert found["changed rows"].value.splitlines()[2:] == ["| + | A\\|B |", "| − | NULL |"]
    assert epoch_metadata(replace(whole, strategy="full", reason="rand()"))["strategy"] == "full: rand()"


@pytest.mark.parametrize(
    ("selection", "tags", "compared"),
    [
        (None, {}, set()),
        (None, {VERIFY_TAG: "false"}, set()),
        (None, {VERIFY_TAG: "true"}, {"per_carrier", "biggest"}),
        (AssetSelection.assets("biggest"), {VERIFY_TAG: "true"}, {"biggest"}),
        (AssetSelection.assets("biggest"), {}, set()),
        (AssetSelection.checks(AssetCheckKey(AssetKey("biggest"), MATCHES_FULL_RECOMPUTE)), {}, {"biggest"}),
    ],
)
def test_queries_are_run_in_full_where_a_run_asks_for_it(selection, tags, compared):
    result = run(StubRunner(), selection=selection, tags=tags)
    assert result.success
    checks = [c for c in result.get_asset_check_evaluations() if c.check_name == MATCHES_FULL_RECOMPUTE]
    assert {check.asset_key.to_user_string() for check in checks} == compared


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


def configured(**config):
    return {"ops": {"materialized_views": {"config": config}}}


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ({}, ([], {}, False)),
        ({"full_refresh": ["biggest"], "strict": True}, (["biggest"], {}, True)),
        ({"full_refresh": ["*"], "until_version": {"flights": 3}}, (["per_carrier", "biggest"], {"flights": 3}, False)),
    ],
)
def test_run_config_reaches_the_run(config, asked):
    runner = StubRunner()
    assert run(runner, run_config=configured(**config)).success
    assert tuple(runner.config.values()) == asked


def test_a_full_refresh_is_never_idle():
    runner = StubRunner()
    result = run(runner, [], run_config=configured(full_refresh=["biggest"]), raise_on_error=False)
    assert "Spark is not started for nothing" in str(result.all_events), "it goes on to the runner"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"full_refresh": ["bigest"]}, "full_refresh: the project has no view bigest; there are per_carrier, biggest"),
        ({"full_refresh": ["big"]}, "the project has no view big;"),
    ],
)
def test_run_config_that_means_nothing_is_refused_before_anything_runs(config, said):
    runner = StubRunner()
    with pytest.raises(DeclarationError, match=said):
        run(runner, run_config=configured(**config))
    selection = AssetSelection.checks(AssetCheckKey(AssetKey("biggest"), STREAM_KEY_UNIQUE))
    with pytest.raises(DeclarationError, match="this one only makes checks"):
        run(runner, selection=selection, run_config=configured(full_refresh=["biggest"]))
    with pytest.raises(DagsterInvalidConfigError, match="full_refrsh"):
        run(runner, run_config=configured(full_refrsh=["biggest"]))
    with pytest.raises(DagsterInvalidConfigError, match="Invalid scalar"):
        run(runner, run_config=configured(until_version={"flights": "newest"}))
    assert runner.asked == []


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
        STREAM_KEY_UNIQUE: False,
    }
    assert runner.looked_at == {"biggest": None}, "nothing was published by this run"


def test_keys_of_all_views_are_looked_at_together_as_the_run_has_published_them():
    runner = StubRunner([replace(report("per_carrier"), view_version=5), report("biggest")], wrong=("per_carrier",))
    result = run(runner)
    assert runner.looked_at == {"per_carrier": 5, "biggest": 2}
    found = {e.asset_key.to_user_string(): e for e in result.get_asset_check_evaluations()}
    assert {view: e.passed for view, e in found.items()} == {"per_carrier": False, "biggest": True}
    numbers = {name: value.value for name, value in found["per_carrier"].metadata.items()}
    assert numbers == {"duplicated keys": 1, "view version": 5}


def test_definitions_of_the_project_are_valid():
    Definitions.validate_loadable(Definitions(assets=[build_views_asset(ASSETS)], resources={"warehouse": object()}))


# ------------------------------------------------------------------------------------------- views in which nothing changed


def unchanged(view: str) -> ViewReport:
    return replace(report(view), skipped=True, rows_in={}, rows_inserted=0, rows_deleted=0)


@asset(deps=["per_carrier"], automation_condition=AutomationCondition.eager())
def of_the_team():
    """Asked for by Dagster whenever the view below it is materialized."""


@asset(deps=["per_carrier", "biggest"])
def of_both():
    """Reads two views."""


class Location:
    """A code location and its instance: runs of the views, and what Dagster then asks for by itself."""

    def __init__(self, instance):
        self.instance, self.cursor = instance, None

    def run(self, *reports, selection="per_carrier", idle=False):
        warehouse = StubWarehouse(StubRunner(reports), reports if idle else None)
        done = materialize(
            [build_views_asset(ASSETS), *ASSETS.sources, of_the_team, of_both],
            selection=AssetSelection.assets(*selection.split()).without_checks(),
            resources={"warehouse": warehouse},
            instance=self.instance,
        )
        assert done.success
        return {event.asset_key.to_user_string() for event in done.get_asset_materialization_events()}

    def asked_for(self):
        definitions = Definitions(assets=[build_views_asset(ASSETS), of_the_team], resources={"warehouse": object()})
        evaluated = evaluate_automation_conditions(
            definitions, asset_selection=AssetSelection.all(), instance=self.instance, cursor=self.cursor
        )
        self.cursor = evaluated.cursor
        return evaluated.total_requested


@pytest.mark.parametrize(
    ("width", "height", "shown"),
    [(300, 200, (300, 200)), (1000, 9, (1000, 9)), (1250, 500, (1000, 400)), (5000, 1000, (3000, 600))],
)
def test_a_wide_picture_is_made_to_fit_as_long_as_it_can_be_read(width, height, shown):
    size = f'width="{width}" height="{height}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 9 9"><rect width="7"/></svg>'
    text = epoch_metadata(replace(report("v"), picture=svg))["picture"].value
    drawn = base64.b64decode(text.partition("base64,")[2].removesuffix(")")).decode()
    assert drawn == svg.replace(size, 'width="{}" height="{}"'.format(*shown), 1)


@pytest.fixture
def location():
    with DagsterInstance.ephemeral() as instance:
        yield Location(instance)


@pytest.mark.parametrize("idle", [False, True], ids=["spark was started", "spark was not started"])
def test_a_view_in_which_nothing_changed_is_not_materialized_and_wakes_nothing_up(location, idle):
    location.asked_for()
    assert location.run(report("per_carrier")) == {"per_carrier"}
    assert location.run(selection="of_the_team") == {"of_the_team"}
    location.asked_for()
    version = location.instance.get_latest_data_version_record(AssetKey("per_carrier")).storage_id
    assert location.run(unchanged("per_carrier"), idle=idle) == set()
    assert location.asked_for() == 0
    assert location.instance.get_latest_data_version_record(AssetKey("per_carrier")).storage_id == version
    assert location.run(replace(report("per_carrier"), view_version=3)) == {"per_carrier"}
    assert location.asked_for() == 1, "the condition does ask where the view has changed"


def test_dagster_is_told_of_what_it_has_not_heard(location):
    assert location.run(unchanged("per_carrier"), idle=True) == {"per_carrier"}, "the command line had built it"
    assert location.run(unchanged("per_carrier"), idle=True) == set()
    moved = replace(unchanged("per_carrier"), view_version=9)
    assert location.run(moved, idle=True) == {"per_carrier"}, "the command line had brought it up to date"
    assert location.run(moved, idle=True) == set()
    again = replace(report("per_carrier"), view_version=9)
    assert location.run(again) == {"per_carrier"}, "a new warehouse can reach the same version number"


def test_an_asset_over_a_view_that_changed_and_one_that_did_not_is_computed_in_the_same_run(location):
    both = "per_carrier biggest of_both"
    assert location.run(report("per_carrier"), report("biggest"), selection=both) == set(both.split())
    moved = replace(report("per_carrier"), view_version=3)
    assert location.run(moved, unchanged("biggest"), selection=both) == {"per_carrier", "of_both"}


def test_a_view_whose_code_is_another_is_told_of_although_its_rows_are_the_same(location):
    assert location.run(report("per_carrier")) == {"per_carrier"}
    edited = project_assets(build_project(parse_text(SQL.replace("count(*)", "count(1)"), "p.sql")))
    done = materialize(
        [build_views_asset(edited), *edited.sources],
        selection=AssetSelection.assets("per_carrier").without_checks(),
        resources={"warehouse": StubWarehouse(StubRunner([unchanged("per_carrier")]))},
        instance=location.instance,
    )
    assert len(done.get_asset_materialization_events()) == 1


def test_below_an_eager_view_an_asset_can_wait_for_a_change(location):
    eager = SQL.replace("'dagster.group'", "'dagster.automation' = 'eager', 'dagster.group'")
    ours = project_assets(build_project(parse_text(eager, "p.sql")), sources={"flights": "flights"})

    @asset
    def flights():
        """The source, written by the team."""

    @asset(deps=["per_carrier"], automation_condition=AutomationCondition.eager())
    def at_once():
        """Asked for together with the view."""

    @asset(deps=["per_carrier"], automation_condition=when_views_change())
    def on_change():
        """Asked for when the view has changed."""

    assets = [build_views_asset(ours), *ours.sources, flights, at_once, on_change]
    cursor = None

    def asked_for():
        nonlocal cursor
        evaluated = evaluate_automation_conditions(
            Definitions(assets=assets, resources={"warehouse": object()}),
            asset_selection=AssetSelection.all(),
            instance=location.instance,
            cursor=cursor,
        )
        cursor = evaluated.cursor
        return {result.key.to_user_string() for result in evaluated.results if result.true_subset.size}

    def run(selection, *reports):
        resources = {"warehouse": StubWarehouse(StubRunner(reports))}
        selected = AssetSelection.assets(*selection.split()).without_checks()
        assert materialize(assets, selection=selected, resources=resources, instance=location.instance).success

    run("flights per_carrier at_once on_change", report("per_carrier"))
    asked_for()
    run("flights")
    assert asked_for() == {"per_carrier", "at_once"}
    run("per_carrier at_once", unchanged("per_carrier"))
    assert asked_for() == set()
    run("flights")
    assert asked_for() == {"per_carrier", "at_once"}
    run("per_carrier at_once", replace(report("per_carrier"), view_version=3))
    assert asked_for() == {"on_change"}
