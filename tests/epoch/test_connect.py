"""Epochs through a Spark Connect server, from plans that a classic session has stored."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import Registry
from relstate_dagster.jobs.declare.model import ViewDeclaration
from tests.connect_server import ConnectServer, connect_server
from tests.epoch.scripts import Script
from tests.operators.test_differential import QUERIES
from tests.processes import environment, free_port
from tests.prose import ROOT, modules

_PARTS = 5
_OTHERS = {
    "date": "SELECT k, datediff(current_date(), CAST(at AS DATE)) AS age FROM d",
    "temporal": "SELECT k, at FROM d WHERE at > now() - INTERVAL 1 DAY",
    "doubles": "SELECT g, sum(x) AS s, avg(x) AS a, max(at) AS last FROM d GROUP BY g",
    "running": "SELECT k, sum(v) OVER (PARTITION BY g ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS s FROM t",
}
_SOURCES = """
CREATE TABLE t (k INT NOT NULL, g INT, s STRING, v DECIMAL(10, 2), PRIMARY KEY (k));
CREATE TABLE r (k INT NOT NULL, g INT, w BIGINT, PRIMARY KEY (k));
CREATE TABLE m (g INT, s STRING);
CREATE TABLE e (g INT, s STRING) TBLPROPERTIES ('delta.appendOnly' = 'true');
CREATE TABLE d (k INT NOT NULL, g INT, x DOUBLE, at TIMESTAMP, PRIMARY KEY (k));
INSERT INTO t SELECT id, id % 7, if(id % 5 = 0, NULL, char(97 + id % 4)), id % 9 - 3.5 FROM range(60);
INSERT INTO r SELECT id, id % 8, id % 6 FROM range(40);
INSERT INTO m SELECT id % 6, char(97 + id % 5) FROM range(30);
INSERT INTO e SELECT id % 6, char(97 + id % 5) FROM range(30);
INSERT INTO d SELECT id, id % 4, id / 7, now() - make_interval(0, 0, 0, 0, id) FROM range(50);
"""
_CHANGES = (
    """
    UPDATE t SET v = v + 1, g = g + 1 WHERE k % 6 = 1; DELETE FROM t WHERE k % 11 = 2; DELETE FROM r WHERE k % 9 = 4;
    INSERT INTO m VALUES (NULL, NULL), (2, 'a'); DELETE FROM m WHERE s = 'c'; INSERT INTO e VALUES (1, 'z');
    UPDATE d SET x = x / 3 WHERE k % 5 = 0; DELETE FROM d WHERE k = 49
    """,
    """
    DELETE FROM t; INSERT INTO t VALUES (1, 1, 'a', 2), (2, NULL, NULL, NULL); INSERT INTO r VALUES (100, 1, 9);
    DELETE FROM d
    """,
)


class _Client:
    """A process that runs epochs through a server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def does(self, what: str) -> dict[str, str | None]:
        """Views, each with its problem if it has one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        found: dict[str, str | None] = json.loads(line)
        return found


def _command(address: str, folder: Path) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("connect_process.py")), address, str(folder)]


@contextmanager
def _client(server: ConnectServer, folder: Path) -> Iterator[_Client]:
    with subprocess.Popen(
        _command(server.address, folder), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Client(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0, "the client ends"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("connect")) as started:
        yield started


@pytest.mark.parametrize("part", range(_PARTS))
def test_views_are_built_and_kept_through_a_server(
    spark: SparkSession, server: ConnectServer, tmp_path: Path, part: int
) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SOURCES)
    queries = list({**_OTHERS, **QUERIES}.values())[part::_PARTS]
    registry = Registry(spark, script.warehouse)
    registry.declare([ViewDeclaration(f"v{number}", query) for number, query in enumerate(queries)])
    with _client(server, tmp_path / "warehouse") as client:
        for changes in ("", *_CHANGES):
            if changes:
                script.run(changes)
            assert {view: problem for view, problem in client.does("run").items() if problem} == {}
            script.verify()
        # State is the same, whichever kind of session has written it.
        script.run("UPDATE t SET v = 7, g = 2; INSERT INTO r SELECT id, 2, id FROM range(50, 60); REFRESH; VERIFY")
        script.run("DELETE FROM t WHERE k = 1; DELETE FROM r WHERE k > 55")
        assert {view: problem for view, problem in client.does("run").items() if problem} == {}
        script.verify()
        # A query as of an instant is read from its plan, which no server shows.
        wrong = {queries[int(view[1:])]: problem for view, problem in client.does("verify").items() if problem}
        # On another date all rows of views that depend on it are computed.
        assert {view: problem for view, problem in client.does("run tomorrow").items() if problem} == {}
        script.verify()
    assert all("depends on the time" in problem for problem in wrong.values()), wrong
    assert wrong.keys() <= {_OTHERS["date"], _OTHERS["temporal"]}


def test_a_query_of_the_time_is_not_run_in_full(spark: SparkSession, server: ConnectServer, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run("""
        CREATE TABLE t (k INT, at TIMESTAMP, PRIMARY KEY (k)); INSERT INTO t VALUES (1, now());
        CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM t;
        CREATE MATERIALIZED VIEW past TBLPROPERTIES ('refresh.policy' = 'full') AS SELECT k FROM t WHERE at < now();
        INSERT INTO t VALUES (2, now())""")
    with _client(server, tmp_path / "warehouse") as client:
        problems = client.does("run")
        assert problems["counted"] is None
        assert "depends on the time" in str(problems["past"])
    script.run("REFRESH; VERIFY")


def test_plans_are_stored_first(spark: SparkSession, server: ConnectServer, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run("CREATE TABLE t (k INT, g INT, PRIMARY KEY (k)); INSERT INTO t SELECT id, id % 3 FROM range(9)")
    project = tmp_path / "project"
    project.mkdir()
    views = project / "views.sql"
    variables = environment(
        RELSTATE_WAREHOUSE=str(tmp_path / "warehouse"), RELSTATE_PROJECT=str(project), RELSTATE_SERVER="never"
    )

    def relstate(*arguments: str, master: str = server.address) -> tuple[int, str]:
        command = [sys.executable, "-c", "from relstate_dagster.cli import console_script; console_script()", *arguments]
        done = subprocess.run(
            command, env={**variables, "RELSTATE_MASTER": master}, capture_output=True, text=True, check=False
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def is_planned_here_and_built_there(*arguments: str) -> None:
        code, said = relstate("run", *arguments)
        assert code != 0
        assert (
            "is to be planned, which Spark Connect cannot do: run `relstate plan --store` with a Spark of this machine" in said
        )
        code, said = relstate("plan", "--store", master="local[1]")
        assert (code, "build" in said) == (0, True), said
        code, said = relstate("run")
        assert (code, "backfill" in said) == (0, True), said
        script.run("VERIFY")

    views.write_text("CREATE MATERIALIZED VIEW n AS SELECT g, count(*) AS n FROM t GROUP BY g")
    is_planned_here_and_built_there()
    views.write_text("CREATE MATERIALIZED VIEW n AS SELECT g, sum(k) AS n FROM t GROUP BY g")
    is_planned_here_and_built_there("--full-refresh", "n")


def test_where_no_server_is_is_said_at_once(tmp_path: Path) -> None:
    command = _command(f"sc://127.0.0.1:{free_port()}", tmp_path)
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=300)
    assert "no Spark Connect server answers at sc://127.0.0.1:" in run.stderr


def test_a_server_of_another_release_is_refused(server: ConnectServer) -> None:
    program = f"""
from relstate_dagster.jobs.engine import SparkSettings, create_session, spark_connect
spark_connect.spark_release = lambda: "3.5"
create_session(SparkSettings(master="{server.address}"))
"""
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=300)
    assert "and Spark 3.5 is installed here: views are planned for one of them" in run.stderr


@pytest.mark.parametrize(
    ("call", "place"),
    [(".localCheckpoint(", "state_lib/local_checkpoint.py"), (".newSession(", "jobs/engine/spark_connect.py")],
)
def test_what_a_server_does_otherwise_is_called_in_one_place(call: str, place: str) -> None:
    files = [path.relative_to(ROOT) for path, _ in modules() if call in path.read_text()]
    assert [str(path) for path in files if path.parts[0] != "benchmarks"] == [place]
