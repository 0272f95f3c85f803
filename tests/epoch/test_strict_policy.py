"""``refresh.policy = 'incremental, strict'``: only a user who names such a view has it recomputed.

``CAUSES`` are all reasons for which a run would; ``DOORS`` all ways to start one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from dagster import DagsterInstance
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.code_location import build_definitions
from relstate_dagster.jobs.api import Action, EpochRunner, Registry, Warehouse, idle_reports, preview_run, sync_project
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.server.json_values import to_plain
from relstate_dagster.server.work import Job, Works
from relstate_dagster.state_lib.errors import PlanError, RelstateError, SourceError
from tests.epoch.home import FILES, Home
from tests.epoch.scripts import Script, copied, kept

_STRICT = "TBLPROPERTIES ('refresh.policy' = 'incremental,strict')"
_SUMS = f"CREATE MATERIALIZED VIEW sums {_STRICT} AS SELECT sum(v) AS s FROM p"


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Home:
    """View ``sums`` is strict, and built before it was declared so: that needs no rebuild."""
    is_copied = copied("strict", tmp_path)
    home = Home(spark, tmp_path)
    if is_copied:
        return home
    generation = home.warehouse.read().views["sums"].generation
    home.write("sums", _SUMS)
    home.bring()
    view = home.warehouse.read().views["sums"]
    assert (view.is_strict, view.generation) == (True, generation)
    kept("strict", tmp_path)
    return home


def _edits(name: str, text: str) -> Callable[[Home], None]:
    return lambda home: home.write(name, text)


def _strict_over(home: Home) -> None:
    home.write("sums", FILES["sums"])
    home.write("over", FILES["over"].replace(" AS ", f" {_STRICT} AS ", 1))
    home.bring()
    home.write("sums", FILES["sums"].replace("sum(v)", "max(v)"))


def _planned_otherwise(home: Home) -> None:
    """Leave ``sums`` with a plan of another query, by an earlier planner's mistake."""
    query = "SELECT sum(v) + 1 AS s FROM p"
    home.write("sums", (home.project / "sums.sql").read_text().replace("SELECT sum(v) AS s FROM p", query))
    home.warehouse.catalog.update(lambda state: state.with_view(replace(state.views["sums"], plan_version=0, query=query)))


def _below_planned_otherwise(home: Home) -> None:
    home.write("sums", FILES["sums"])
    home.write("over", FILES["over"].replace(" AS ", f" {_STRICT} AS ", 1))
    home.bring()
    _planned_otherwise(home)


def _without_state(home: Home) -> None:
    def unfilled(state: CatalogState) -> CatalogState:
        view = state.views["sums"]
        return state.with_view(replace(view, unfilled=tuple(n.id for n in view.planned.stateful.nodes[:-1] if n.tables)))

    home.warehouse.catalog.update(unfilled)
    home.sql("INSERT INTO t VALUES (4, 4)")


def _rebuild_is_pending(home: Home) -> None:
    edited = FILES["sums"].replace("sum(v)", "max(v)")
    home.write("sums", edited)
    sync_project(home.spark, home.warehouse, load_project(home.project))
    home.write("sums", edited.replace(" AS ", f" {_STRICT} AS ", 1))


def _replaced_source(home: Home) -> None:
    shutil.rmtree(home.warehouse.source_path("t"))


#: What happens, the strict view that a run would compute in full, and the reason in the error.
CAUSES = {
    "edited query": (_edits("sums", _SUMS.replace("sum(v)", "max(v)")), "sums", "it was edited"),
    "edited layout": (_edits("sums", _SUMS.replace("TBL", "CLUSTER BY (s) TBL")), "sums", "it was edited"),
    "query without an incremental form": (
        _edits("sums", _SUMS.replace(" AS s ", " AS s, current_date() AS d ")),
        "sums",
        "it was edited",
    ),
    "edited plain view": (_edits("plain", FILES["plain"] + " WHERE k > 1"), "sums", "plain view p was edited"),
    "other key of a source": (
        _edits("sources", FILES["sources"].replace(", PRIMARY KEY (k)", "")),
        "sums",
        "source t is declared otherwise",
    ),
    "edited view below": (_strict_over, "over", "it reads sums, which is rebuilt"),
    "another version's plan": (_planned_otherwise, "sums", "another version of relstate has planned sums"),
    "another version's plan below": (_below_planned_otherwise, "over", "another version of relstate has planned sums"),
    "no state": (_without_state, "sums", "kept no state"),
    "a rebuild that is not complete": (_rebuild_is_pending, "sums", "began before it was declared strict"),
}


def _as_is(home: Home) -> Any:
    """Generations, epochs and published versions of all views. A refused run changes none."""
    state = Warehouse(home.warehouse.root).read()
    tables = {name: deltalake.DeltaTable(f"{home.warehouse.root}/views/{name}").version() for name in state.views}
    return {n: (v.generation, v.epochs, v.query) for n, v in state.views.items() if n in ("sums", "over")}, tables


@pytest.mark.parametrize("cause", CAUSES)
def test_no_cause_computes_it_in_full(home: Home, cause: str) -> None:
    happens, view, why = CAUSES[cause]
    happens(home)
    before = _as_is(home)
    looked_at = {one.view: one for one in preview_run(Warehouse(home.warehouse.root), load_project(home.project), most_tasks=2)}
    refused = looked_at[view]
    if "version" in cause:
        assert looked_at["sums"].is_in_full, "only Spark knows whether it is planned otherwise"
    else:
        assert (refused.action, why in refused.why) == (Action.FAIL, True), refused.why
    for _ in range(2):
        with pytest.raises(PlanError, match=f"view {view} would be computed in full: .*{why}.*--full-refresh {view}"):
            home.bring()
    assert _as_is(home) == before
    # By name it is allowed, with whatever else has to be rebuilt for it.
    allowed = ["sums", "over"] if "over" in cause or "below" in cause else [view]
    if cause == "query without an incremental form":
        return
    sync_project(home.spark, home.warehouse, load_project(home.project), full_refresh=[name.upper() for name in allowed])
    list(EpochRunner(home.spark, home.warehouse).run(full_refresh=allowed))
    assert _as_is(home)[0][view][0] != before[0][view][0], "rebuilt"
    Script(home.spark, home.warehouse.root).verify()


def test_a_source_whose_files_are_gone_is_no_reason(home: Home) -> None:
    _replaced_source(home)
    before = home.warehouse.read().views["sums"].generation
    with pytest.raises(RelstateError):
        home.bring()
    assert home.warehouse.read().views["sums"].generation == before


def test_what_is_followed_is_not_refused(home: Home) -> None:
    """A strict view follows most rows, an overwritten source, and an edited comment."""
    home.sql("UPDATE t SET v = v * 2; INSERT OVERWRITE t VALUES (7, 7)")
    home.write("sums", _SUMS.replace("sums ", "sums COMMENT 'x' ", 1))
    generation = home.warehouse.read().views["sums"].generation
    home.bring()
    assert home.warehouse.read().views["sums"].generation == generation
    Script(home.spark, home.warehouse.root).verify()


def test_a_function_is_refused_if_its_plan_is_another_one(home: Home) -> None:
    """Only Spark knows that of its text; what gives the same plan is no edit."""

    def write(body: str) -> None:
        (home.project / "functions.py").write_text(
            "from relstate_dagster import materialized_view\n\n\n"
            '@materialized_view(properties={"refresh.policy": "incremental, strict"})\n'
            f"def few(spark):\n    {body}\n"
        )

    write('return spark.table("t").where("v > 1")')
    home.bring()
    generation = home.warehouse.read().views["few"].generation
    write('rows = spark.table("t")\n    return rows.where("v > 1")')
    home.bring()
    write('return spark.table("t").where("v > 2")')
    for _ in range(2):
        with pytest.raises(PlanError, match="view few would be computed in full: it was edited"):
            home.bring()
    write('return spark.table("t").where("v > 1")')
    home.bring()
    assert home.warehouse.read().views["few"].generation == generation
    Script(home.spark, home.warehouse.root).verify()


def test_an_edit_that_is_undone_is_no_rebuild(home: Home) -> None:
    home.write("sums", _SUMS.replace("sum(v)", "max(v)"))
    with pytest.raises(PlanError):
        home.bring()
    home.write("sums", _SUMS)
    home.sql("INSERT INTO t VALUES (5, 5)")
    home.bring()
    Script(home.spark, home.warehouse.root).verify()


def test_a_rebuild_that_was_asked_for_is_gone_on_with(home: Home) -> None:
    """The run that was asked for it has noted the edit, and has died."""
    generation = home.warehouse.read().views["sums"].generation
    home.write("sums", _SUMS.replace("sum(v)", "max(v)"))
    sync_project(home.spark, home.warehouse, load_project(home.project), full_refresh=["sums", "over"])
    home.bring()
    assert home.warehouse.read().views["sums"].generation != generation
    Script(home.spark, home.warehouse.root).verify()


def test_a_strict_view_over_a_full_refresh_is_named_as_well(home: Home) -> None:
    home.write("over", FILES["over"].replace(" AS ", f" {_STRICT} AS ", 1))
    home.bring()
    runner, project = EpochRunner(home.spark, home.warehouse), load_project(home.project)
    before = _as_is(home)
    for refused in (
        lambda: list(runner.run(full_refresh=["sums"])),
        lambda: idle_reports(home.warehouse, project, ["sums"], full_refresh=["sums"]),
    ):
        with pytest.raises(PlanError, match="view over would be computed in full: it reads sums, of the full refresh"):
            refused()
    assert _as_is(home) == before
    list(runner.run(full_refresh=["sums", "over"]))
    assert _as_is(home) != before


def _by_command_line(home: Home, rebuilt: list[str]) -> str:
    options = [option for name in rebuilt for option in ("--full-refresh", name)]
    where = ["--project", str(home.project), "--warehouse", home.warehouse.root, "--server", "never"]
    done = CliRunner().invoke(app, ["run", *options, *where])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def _by_dagster(home: Home, rebuilt: list[str]) -> str:
    job = build_definitions(home.project, warehouse=home.warehouse.root).get_repository_def().get_job("refresh_views")
    asked = {"ops": {"materialized_views": {"config": {"full_refresh": rebuilt}}}}
    with DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, run_config=asked, raise_on_error=False)
        return "".join(str(e.step_failure_data.error) for e in done.all_events if e.is_step_failure)


def _by_server(home: Home, rebuilt: list[str]) -> str:
    works = Works(home.spark, Warehouse(home.warehouse.root))
    request = {"do": "run", "project": to_plain(load_project(home.project)), "arguments": {"full_refresh": rebuilt}}
    return str(list(works.do(Job(home.spark, print, print), request)))


def _by_python(home: Home, rebuilt: list[str]) -> str:
    project = load_project(home.project)
    Registry(home.spark, home.warehouse, full_refresh=rebuilt).declare(project.views)
    return str(list(EpochRunner(home.spark, home.warehouse).run(full_refresh=rebuilt)))


DOORS = {"command line": _by_command_line, "Dagster": _by_dagster, "server": _by_server, "Python": _by_python}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_is_open(home: Home, door: str) -> None:
    home.write("sums", _SUMS.replace("sum(v)", "max(v)"))
    before = _as_is(home)
    try:
        said = DOORS[door](home, [])
    except PlanError as error:
        said = str(error)
    assert "view sums would be computed in full: it was edited" in said
    assert _as_is(home) == before
    assert "computed in full" not in DOORS[door](home, ["sums"])
    assert _as_is(home)[0]["sums"][2].startswith("SELECT max(v)")
    Script(home.spark, home.warehouse.root).verify()


def test_no_script_rebuilds_it(home: Home) -> None:
    before, script = _as_is(home), Script(home.spark, home.warehouse.root)
    for statement, error_class in (
        ("CREATE OR REPLACE VIEW p AS SELECT k, v + 2 AS v FROM t", PlanError),
        ("CREATE MATERIALIZED VIEW sums AS SELECT max(v) AS s FROM p", RelstateError),
        ("DROP TABLE t", RelstateError),
    ):
        assert isinstance(script.error(statement), error_class)
    script.run("REFRESH; REFRESH MATERIALIZED VIEW sums")
    assert _as_is(home) == before
    # Dropped and created again it is another view.
    script.run(f"DROP MATERIALIZED VIEW over; DROP MATERIALIZED VIEW sums; {_SUMS}; VERIFY")


def test_a_query_without_an_incremental_form_is_no_strict_view(home: Home) -> None:
    home.write("new", f"CREATE MATERIALIZED VIEW new {_STRICT} AS SELECT sum(v) AS s, current_date() AS d FROM t")
    before = _as_is(home)
    with pytest.raises(PlanError, match="cannot be maintained incrementally"):
        home.bring()
    assert _as_is(home) == before


@pytest.mark.parametrize(
    ("happens", "fails"),
    [
        (lambda _: None, False),
        (lambda home: home.sql("INSERT INTO t VALUES (8, 8)"), False),
        (_edits("new", "CREATE MATERIALIZED VIEW new AS SELECT s FROM sums"), False),
        (_edits("others", FILES["others"].replace("count(*)", "max(k)")), True),
        (_edits("sums", _SUMS.replace("sum(v)", "max(v)")), True),
        (_planned_otherwise, True),
        (_replaced_source, True),
    ],
    ids=["nothing", "change", "new view", "edited view", "edited strict view", "another version's plan", "source is gone"],
)
def test_plan_strict_fails_where_a_view_would_be_computed_in_full(
    home: Home, happens: Callable[[Home], None], fails: bool
) -> None:
    happens(home)
    where = ["--project", str(home.project), "--warehouse", home.warehouse.root]
    assert CliRunner().invoke(app, ["plan", *where]).exit_code == 0
    assert CliRunner().invoke(app, ["plan", "--strict", *where]).exit_code == int(fails)


def test_plan_strict_fails_for_a_query_that_runs_in_full(home: Home) -> None:
    home.write("new", "CREATE MATERIALIZED VIEW new TBLPROPERTIES ('refresh.policy' = 'full') AS SELECT sum(v) AS s FROM t")
    where = ["--project", str(home.project), "--warehouse", home.warehouse.root]
    assert CliRunner().invoke(app, ["plan", "--strict", *where]).exit_code == 0, "its first build is none"
    home.bring()
    assert CliRunner().invoke(app, ["plan", "--strict", *where]).exit_code == 0, "nothing has changed"
    home.sql("INSERT INTO t VALUES (8, 8)")
    assert CliRunner().invoke(app, ["plan", "--strict", *where]).exit_code == 1


def test_a_source_that_was_replaced_is_said_as_before(home: Home) -> None:
    """Changes that cannot be read are an error for every policy."""
    _replaced_source(home)
    home.spark.sql(f"CREATE TABLE delta.`{home.warehouse.source_path('t')}` (k INT, v INT) USING delta")
    with pytest.raises(SourceError, match="--full-refresh"):
        home.bring()
