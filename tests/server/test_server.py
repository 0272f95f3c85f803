"""The warm server: a real process over a real warehouse, asked by the command line, scripts, Dagster and Python.

One server does for all tests of this file: whatever kills it, the next one that needs it starts another. The tests hold in
any order, and where those of another file come between them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from dagster import DagsterInstance
from typer.testing import CliRunner

from relstate_dagster.cli import app, start
from relstate_dagster.code_location import build_definitions
from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.resources import WarehouseResource
from relstate_dagster.server import client
from relstate_dagster.server.channel import ServerGone, connect
from relstate_dagster.server.process import Server
from relstate_dagster.server.runner import ServerRunner
from relstate_dagster.server.server_file import Place, Registered
from relstate_dagster.server.settings import ServerSettings
from relstate_dagster.state_lib.errors import DeclarationError, EnvironmentProblem, RelstateError
from tests.processes import environment, heeds_interrupts, until

FILES = {
    "sources": "CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); CREATE TABLE other (k INT);",
    "sums": "CREATE MATERIALIZED VIEW sums AS SELECT sum(scaled(v)) AS s, count(*) AS n FROM t",
    "over": "CREATE MATERIALIZED VIEW over TBLPROPERTIES ('check.known.not_null' = 's') AS SELECT s FROM sums WHERE s > 1",
    "others": "CREATE MATERIALIZED VIEW others AS SELECT count(*) AS n FROM other",
}
FUNCTIONS = """
from served_factor import FACTOR

def register(spark):
    spark.udf.register("scaled", lambda v: v * FACTOR, "int")
"""


class Served:
    """A project with functions of its own, its warehouse, and the server of it."""

    def __init__(self, spark, folder: Path) -> None:
        self.spark, self.folder, self.project = spark, folder, folder / "project"
        self.project.mkdir()
        for name, text in FILES.items():
            (self.project / f"{name}.sql").write_text(text)
        (folder / "served_functions.py").write_text(FUNCTIONS)
        self.functions("FACTOR = 1\n")
        self.warehouse = str(folder / "warehouse")
        self.environment = {
            "RELSTATE_FUNCTIONS": "served_functions:register",
            "RELSTATE_PROJECT": str(self.project),
            "RELSTATE_WAREHOUSE": self.warehouse,
            "RELSTATE_DRIVER_MEMORY": "1g",
            "RELSTATE_MASTER": "local[2]",
        }

    def functions(self, text: str) -> None:
        (self.folder / "served_factor.py").write_text(text)

    def started(self) -> client.ServerAt:
        return client.find(self.warehouse) or client.started(start.server_settings(start.Location.from_environment()))

    def relstate(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, list(arguments))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    def status(self) -> dict:
        return self.started().status()

    def rows(self, view: str) -> list[tuple]:
        frame = self.spark.read.format("delta").load(f"{self.warehouse}/views/{view}")
        return sorted(tuple(row)[: len([c for c in frame.columns if not c.startswith("_")])] for row in frame.collect())

    def check_equal(self) -> None:
        runner = EpochRunner(self.spark, Warehouse(self.warehouse, "served_functions:register"))
        assert not [(r.view, r.problem) for r in runner.verify() if not r.equal]

    def popen(self, *arguments: str) -> subprocess.Popen:
        code = "from relstate_dagster.cli import console_script; console_script()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=heeds_interrupts,
            env=environment(),
        )


@pytest.fixture(scope="module")
def home(spark, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        served = Served(spark, tmp_path_factory.mktemp("served"))
        patch.syspath_prepend(served.folder)
        for name, value in served.environment.items():
            patch.setenv(name, value)
        served.started()
        code, said = served.relstate("run")
        assert code == 0, said
        yield served
        client.stopped(served.warehouse)
        # Set up once more in this process, the fixture has other files of these names.
        for module in ("served_functions", "served_factor"):
            sys.modules.pop(module, None)


@pytest.fixture
def served(home, monkeypatch):
    """A server that answers; this process may not start Spark for what it is asked."""
    home.started()

    def none(*_):
        raise AssertionError("this process has started Spark")

    monkeypatch.setattr(start, "create_session", none)
    return home


def test_epochs_and_scripts_are_run_by_the_server(served):
    served.relstate("sql", "-e", "DELETE FROM t")
    before = served.status()["requests"]
    code, said = served.relstate("run")
    assert code == 0, said
    assert "going on without it" not in said
    script = "INSERT INTO t VALUES (1, 10), (2, 20); REFRESH; SELECT sum(v) AS s, cast('2020-01-01' AS DATE) AS d FROM t"
    code, said = served.relstate("sql", "--format", "json", "-e", script)
    assert code == 0, said
    shown = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert shown == [{"statement": 3, "columns": ["s", "d"], "rows": [[30, "2020-01-01"]]}]
    assert "sums: epoch" in said
    code, said = served.relstate("sql", "-e", "UPDATE t SET v = v + 1 WHERE k = 1")
    assert code == 0, said
    code, said = served.relstate("run", "sums", "over")
    assert (code, served.rows("sums")) == (0, [(31, 2)]), said
    # Neither a temporary view nor a setting of one script is there for the next.
    served.relstate("sql", "-e", "CREATE OR REPLACE TEMPORARY VIEW mine AS SELECT 1 AS a; SET spark.sql.ansi.enabled=false")
    code, said = served.relstate("sql", "--keep-going", "--format", "json", "-e", "SELECT 1/0; SELECT * FROM nowhere; SELECT 3")
    shown = [json.loads(line) for line in said.splitlines()]
    assert ["error" in line for line in shown] == [True, True, False]
    assert "DIVIDE_BY_ZERO" in shown[0]["error"]["message"]
    assert served.relstate("sql", "-e", "SELECT 1; SELEC 2")[0] == 1
    for verb in ("verify", "check", "compact", "vacuum"):
        code, said = served.relstate(verb)
        assert code == 0, said
        assert "going on without it" not in said
        assert "over" in said
    with pytest.raises(DeclarationError, match="no materialized view named nothing"):
        served.relstate("verify", "--sample", "1", "nothing")
    assert served.status()["requests"] > before + 9
    served.check_equal()


def test_errors_come_as_this_process_would_raise_them(served, monkeypatch):
    with pytest.raises(DeclarationError, match="no materialized view named nowhere"):
        served.relstate("run", "nowhere")
    (served.project / "broken.sql").write_text("CREATE MATERIALIZED VIEW broken AS SELECT nothing FROM t")
    try:
        with pytest.raises(Exception, match="cannot be resolved") as raised:
            served.relstate("run")
        assert type(raised.value).__name__ == "PlanError"
    finally:
        (served.project / "broken.sql").unlink()
    (served.project / "extra.sql").write_text("CREATE MATERIALIZED VIEW extra AS SELECT k FROM other")
    try:
        assert served.relstate("run")[0] == 0
    finally:
        (served.project / "extra.sql").unlink()
    code, said = served.relstate("run", "--prune")
    assert (code, "dropped extra" in said) == (0, True)
    assert "extra" not in Warehouse(served.warehouse).read().views


def test_a_run_in_dagster_is_done_by_the_server(served):
    resource = WarehouseResource(path=served.warehouse, functions="served_functions:register")
    repository = build_definitions(served.project, warehouse=resource).get_repository_def()
    served.relstate("sql", "-e", "INSERT INTO t VALUES (30, 3)")
    with DagsterInstance.ephemeral() as instance:
        before = served.status()["requests"]
        result = repository.get_job("refresh_views").execute_in_process(instance=instance)
        assert result.success
        assert served.status()["requests"] - before == 3, "an epoch, the keys of all views together, a declared check"
        assert [c.passed for c in result.get_asset_check_evaluations()] == [True] * 4
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]
        assert any("the server of the warehouse (process" in line for line in said), said
        assert any(line.startswith(("sums: brought to epoch", "sums: built to epoch")) for line in said), said
        assert repository.get_job("verify_views").execute_in_process(instance=instance).success
        assert repository.get_job("maintain_state").execute_in_process(instance=instance).success
    served.check_equal()


@pytest.mark.parametrize("form", ["table", "json"])
def test_what_is_asked_of_rows_is_answered_as_this_process_would(served, form):
    script = """
        CREATE TABLE kinds (k INT, d DOUBLE, n DECIMAL(9, 2), at TIMESTAMP, b BINARY, m MAP<INT, DATE>, PRIMARY KEY (k));
        CREATE MATERIALIZED VIEW of_kinds AS SELECT * FROM kinds;
        INSERT INTO kinds VALUES (1, double('NaN'), 1.50, TIMESTAMP '2020-01-01 00:00:00', X'00FF', map(3, DATE '2020-01-02'));
        INSERT INTO kinds VALUES (2, NULL, NULL, NULL, NULL, NULL); REFRESH;
        UPDATE kinds SET n = 2.50, b = NULL WHERE k = 1; DELETE FROM kinds WHERE k = 2; REFRESH
    """
    if "of_kinds" not in Warehouse(served.warehouse).read().views:
        assert served.relstate("sql", "-e", script)[0] == 0
    asked = [["why", "--key", "k=1"], ["diff"], ["why", "--key", "k=99"], ["diff", "--from", "99"]]
    questions = [(verb, "of_kinds", *options) for verb, *options in asked]
    before = served.status()["requests"]
    by_server = [_answered(served, *question, "--format", form) for question in questions]
    # A request is counted once it has been answered.
    until(lambda: served.status()["requests"] - before == len(questions), "all questions to be counted")
    assert "2.50" in by_server[0]
    assert [said.startswith(("DeclarationError: ", "EpochError: ")) for said in by_server] == [False, False, True, True]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "create_session", lambda _settings: served.spark)
        assert by_server == [_answered(served, *question, "--format", form, "--server", "never") for question in questions]
        # A server of another kind does nothing, and this process answers.
        patch.setattr(ServerSettings, "agreed", lambda _self: {"Python": "another"})
        said = _answered(served, *questions[1], "--format", form)
    assert "going on without it" in said
    assert said.endswith(by_server[1])


def _answered(served, *arguments) -> str:
    """What is printed, or raised."""
    try:
        return served.relstate(*arguments)[1]
    except RelstateError as error:
        return f"{type(error).__name__}: {error}"


def test_functions_are_imported_again_when_their_files_change(served):
    # In a module that the functions' own imports: Spark's workers, which are kept, have the old one.
    served.relstate("sql", "-e", "INSERT INTO t VALUES (40, 4)")
    served.relstate("run")
    try:
        served.functions("FACTOR = 100\n")
        code, said = served.relstate("run", "--full-refresh", "sums")
        assert "imported again" in said
        total = served.spark.read.format("delta").load(f"{served.warehouse}/sources/t").selectExpr("100 * sum(v)").first()[0]
        assert (code, served.rows("sums")[0][0]) == (0, total), said
    finally:
        served.functions("FACTOR = 1\n")
    served.relstate("run", "--full-refresh", "sums")


def test_other_settings_are_refused_and_the_caller_goes_on_by_itself(home, monkeypatch):
    home.started()
    agreed = ServerSettings.agreed
    newer = {"version of relstate-dagster": "99.0"}
    monkeypatch.setattr(ServerSettings, "agreed", lambda self: {**agreed(self), **newer})
    code, said = home.relstate("run")
    assert code == 0
    assert "has other settings: version of relstate-dagster" in said.replace("\n", " ")
    assert "going on without it" in said
    newer.clear()
    monkeypatch.setenv("RELSTATE_SIZING", json.dumps({"driver_change_bytes": 1}))
    assert "RELSTATE_SIZING: none there" in home.relstate("sql", "-e", "SELECT 1")[1].replace("\n", " ")
    assert home.relstate("run", "--server", "never")[0] == 0
    with pytest.raises(DeclarationError, match="is not that of"):
        home.relstate("run", "--server", "/nowhere/socket")


def test_two_at_once_wait_for_each_other_and_status_is_answered(served):
    code = "SELECT count(*) FROM range(400000000) a WHERE a.id % 3 = 1"
    first = served.popen("sql", "-e", code)
    deadline = time.monotonic() + 180
    while not served.status()["doing"]:
        assert time.monotonic() < deadline
    code, said = served.relstate("sql", "-e", "SELECT 7")
    assert f"waiting for the server: sql for process {first.pid}" in said.replace("\n", " ")
    assert (code, first.wait(timeout=180)) == (0, 0)


def test_ctrl_c_cancels_the_request_and_leaves_the_server(served):
    pid = served.started().registered.pid
    process = served.popen("sql", "-e", "SELECT count(*) FROM range(3000000000) a JOIN range(100) b ON a.id % 3 <> b.id")
    deadline = time.monotonic() + 180
    while not served.status()["doing"]:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert (process.returncode, said.splitlines()[-1][:11]) == (130, "interrupted"), said
    while served.status()["doing"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert served.started().registered.pid == pid
    assert served.relstate("sql", "-e", "SELECT 1")[0] == 0


def test_a_run_that_is_cancelled_leaves_no_view_behind(served):
    served.relstate("sql", "-e", "INSERT INTO t VALUES (60, 1)")
    settings = start.server_settings(start.Location.from_environment())
    project = load_project(served.project)

    def begins(_said):
        raise KeyboardInterrupt  # as Ctrl-C in the middle of an epoch

    by_server = ServerRunner(served.started(), settings.agreed(), project, lambda: None, print, begins)
    with pytest.raises(KeyboardInterrupt):
        list(by_server.run())
    assert served.relstate("run")[0] == 0
    assert not any(view.problem for view in Warehouse(served.warehouse).read().views.values())
    served.check_equal()


def test_an_edit_that_waits_for_a_run_says_so_and_is_cancelled(served):
    edited = FILES["others"].replace("count(*)", "count(*) + 1")
    (served.project / "others.sql").write_text(edited)
    said = []

    def tell(text):
        said.append(text)
        raise KeyboardInterrupt  # as Ctrl-C, or Terminate

    project, settings = load_project(served.project), start.server_settings(start.Location.from_environment())
    (served.project / "others.sql").write_text(FILES["others"])
    by_server = ServerRunner(served.started(), settings.agreed(), project, lambda: None, tell, print)
    with Claims(Warehouse(served.warehouse), "the-other-run", "bringing up to date") as other:
        other.take(["others"])
        with pytest.raises(KeyboardInterrupt):
            list(by_server.run())
        assert "(run the-other-run), which is bringing up to date others" in said[0]
        until(lambda: not served.status()["doing"], "the server has ended that request")
    assert served.relstate("run")[0] == 0
    served.check_equal()


def test_a_token_that_is_wrong_and_a_file_of_a_dead_server(served, tmp_path):
    server = served.started().registered
    with pytest.raises(ServerGone, match="token"):
        connect(server.address, "0" * 32)
    assert Place(served.warehouse).path.stat().st_mode & 0o077 == 0
    assert served.status()["pid"] == server.pid
    with pytest.raises(EnvironmentProblem, match="there already"):
        client.started(start.server_settings(start.Location.from_environment()))
    place = Place(str(tmp_path / "elsewhere"))
    place.write(Registered(server.pid, str(tmp_path / "gone" / "socket"), "0" * 32, place.warehouse))
    assert client.find(place.warehouse) is None
    assert not place.path.exists()
    assert served.relstate("server", "status")[0] == 0
    assert "ready" in served.relstate("server", "logs", "-n", "1000")[1]
    assert served.relstate("server", "status", "--warehouse", place.warehouse)[0] == 1


def test_it_ends_when_nobody_asks(spark, tmp_path):
    place = Place(str(tmp_path / "warehouse"))
    settings = ServerSettings(place.warehouse, idle_minutes=0.02, warm_up=False)
    serving = threading.Thread(target=Server(spark, settings).serve, args=(place,))
    serving.start()
    serving.join(timeout=120)
    assert not serving.is_alive()
    assert not place.path.exists()


def test_a_server_that_dies_in_the_middle_of_an_epoch(home):
    home.started()
    published = Warehouse(home.warehouse).read()
    home.relstate("sql", "-e", "INSERT INTO t SELECT coalesce(max(k), 0) + 1, 5 FROM t")
    # The server reads the functions again, and with them where to die.
    home.functions(f"import os\nos.environ[{failpoints.VARIABLE!r}] = 'before_complete'\nFACTOR = 1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "VARIABLE", "NOT_HERE")
        try:
            code, said = home.relstate("run", "sums", "over")
        finally:
            os.environ.pop("RELSTATE_FAILPOINT", None)
            home.functions("FACTOR = 1\n")
    assert code == 0, said
    assert "the server has ended before it was done; going on without it" in said.replace("\n", " ")
    assert client.find(home.warehouse) is None
    home.check_equal()
    newest = Warehouse(home.warehouse).read()
    before, after = (state.versions_at("sums").view_version for state in (published, newest))
    assert after == before + 1, "published once"


def test_a_script_goes_on_only_where_nothing_is_done_twice(home):
    home.started()
    sync_project(home.spark, Warehouse(home.warehouse, "served_functions:register"), load_project(home.project))
    home.functions(f"import os\nos.environ[{failpoints.VARIABLE!r}] = 'before_publish'\nFACTOR = 1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "VARIABLE", "NOT_HERE")
        try:
            insert = "INSERT INTO t SELECT coalesce(max(k), 0) + 1, 5 FROM t"
            code, said = home.relstate("sql", "--format", "json", "-e", f"{insert}; REFRESH; SELECT count(*) AS n FROM t")
        finally:
            os.environ.pop("RELSTATE_FAILPOINT", None)
            home.functions("FACTOR = 1\n")
    assert code == 0, said
    assert "going on without it" in said
    count = json.loads(said.splitlines()[-1])
    assert (count["statement"], count["rows"][0][0]) == (3, home.rows("sums")[0][1]), said
    home.check_equal()
