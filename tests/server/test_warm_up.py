"""What a server does before anybody asks: it is in nobody's way, leaves nothing, and cannot fail the server."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app, start
from relstate_dagster.server import client, warm_up
from relstate_dagster.server.server_file import Place
from relstate_dagster.server.warm_up import WarmUp
from tests.processes import until

#: Delta sets them in whichever session is active when it first reads a table.
_DELTAS_OWN = {"spark.sql.parquet.fieldId.read.enabled", "spark.sql.parquet.fieldId.write.enabled"}


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "relstate.server")
    return caplog


def names_of_tables(spark):
    """Without opening them: other tests have left hundreds, which Spark's catalog takes minutes for."""
    return sorted((row.namespace, row.tableName) for row in spark.sql("SHOW TABLES").collect())


def test_all_of_it_runs_and_leaves_nothing(spark, tmp_path, monkeypatch, said):
    monkeypatch.setattr(warm_up, "_EPOCHS", 1)
    before = spark.conf.getAll, names_of_tables(spark)
    warming = WarmUp(spark, tmp_path / "warming")
    warming.start()
    until(lambda: not warming.is_running, "it ends", 240)
    assert "warmed up in" in said.text
    assert not [*tmp_path.iterdir()]
    after = spark.conf.getAll, names_of_tables(spark)
    assert after[1] == before[1]
    assert {name: after[0].get(name) for name in before[0]} == dict(before[0])
    assert {name for name in after[0] if name not in before[0]} <= _DELTAS_OWN
    warming.stop()


def test_it_ends_soon_and_cancels_nothing_of_others(spark, tmp_path, said):
    warming = WarmUp(spark, tmp_path / "warming")
    warming.start()
    until(lambda: [*tmp_path.glob("warming/sources/*/_delta_log/*1.json")], "it is at work")
    warming.stop()
    began = time.monotonic()
    assert spark.range(1000).selectExpr("sum(id) AS s").first()[0] == 499500
    until(lambda: not warming.is_running, "it ends", 30)
    assert time.monotonic() - began < 15
    assert "until a request" in said.text
    assert not [*tmp_path.iterdir()]


def test_what_fails_in_it_is_written_to_the_log(spark, tmp_path, monkeypatch, said):
    monkeypatch.setattr(warm_up, "_VIEWS", "CREATE TABLE warming_t (k INT); SELECT nothing FROM warming_t")
    warming = WarmUp(spark, tmp_path / "warming")
    warming.start()
    until(lambda: not warming.is_running, "it ends")
    assert "warming up has failed" in said.text
    (tmp_path / "a file").touch()
    warming = WarmUp(spark, tmp_path / "a file" / "warming")
    warming.start()
    until(lambda: not warming.is_running, "it ends")
    assert said.text.count("warming up has failed") == 2
    assert spark.range(3).count() == 3


def test_a_server_says_so_and_answers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = str(tmp_path / "warehouse")
    for name, value in {"RELSTATE_WAREHOUSE": warehouse, "RELSTATE_DRIVER_MEMORY": "1g", "RELSTATE_MASTER": "local[2]"}.items():
        monkeypatch.setenv(name, value)

    def relstate(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    def none(*_):
        raise AssertionError("this process has started Spark")

    monkeypatch.setattr(start, "create_session", none)
    try:
        relstate("server", "start")
        assert "warming up" in relstate("server", "status")
        server = client.find(warehouse)
        assert server is not None
        folder = Path(server.registered.address).parent
        until(lambda: [*folder.glob("warming/sources/*/_delta_log/*1.json")], "it warms up")
        assert '"rows": [[3]]' in relstate("sql", "--format", "json", "-e", "SELECT 3")
        until(lambda: not server.status()["is_warming_up"], "it ends", 30)
        assert "until a request" in relstate("server", "logs")
        assert not (folder / "warming").exists()
        assert not [*Path(warehouse).glob("**/*warming*")]
        assert "nothing" in relstate("server", "status")
        relstate("server", "stop")

        relstate("server", "start", "--no-warm-up")
        server = client.find(warehouse)
        assert server is not None
        assert not server.status()["is_warming_up"]
        relstate("server", "stop")

        relstate("server", "start")
        server = client.find(warehouse)
        assert server is not None
        folder = Path(server.registered.address).parent
        until(lambda: (folder / "warming").exists(), "it warms up")
        os.kill(server.registered.pid, signal.SIGKILL)
        until(lambda: not Place(warehouse).is_held(), "it is gone")
        assert client.find(warehouse) is None
        assert not folder.exists()
    finally:
        client.stopped(warehouse)
