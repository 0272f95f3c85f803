"""Metrics and spans of runs: what the reports say, recorded once, whoever runs the views."""

from __future__ import annotations

import re
import socket
import sys
import urllib.request
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.jobs.api import EpochRunner, ViewReport, Warehouse
from relstate_dagster.jobs.engine.instants import utc_now
from relstate_dagster.jobs.run import telemetry
from relstate_dagster.jobs.run.lag import view_lags
from relstate_dagster.jobs.run.prometheus import LAGS, lags_text, serve_lags
from relstate_dagster.state_lib.errors import DeclarationError, EnvironmentProblem, RelstateError
from tests.epoch.home import Home
from tests.epoch.scripts import Script
from tests.processes import free_port

_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


class InMemory:
    """Providers that keep what is recorded."""

    def __init__(self) -> None:
        self._reader, self._spans = InMemoryMetricReader(), InMemorySpanExporter()
        self.meters, self.tracers = MeterProvider([self._reader]), TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))

    def points(self) -> dict[str, dict[tuple[str, ...], Any]]:
        """Amounts by metric and by values of attributes, without the warehouse's; of histograms, their sums."""
        found: dict[str, dict[tuple[str, ...], Any]] = {}
        data = self._reader.get_metrics_data()
        for metric in [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []:
            for point in metric.data.data_points:
                labels = tuple(str(v) for k, v in sorted(point.attributes.items()) if k != "warehouse")
                found.setdefault(metric.name, {})[labels] = point.value if hasattr(point, "value") else point.sum
        return found

    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    memory = InMemory()
    monkeypatch.setattr(telemetry, "_providers", lambda _warehouse: (memory.meters, memory.tracers))
    return memory


def _reports(*reports: ViewReport) -> Generator[ViewReport]:
    yield from reports


_CHANGED = ViewReport(
    "a",
    7,
    "incremental",
    None,
    rows_in={"t": (5, 2)},
    rows_inserted=3,
    rows_deleted=1,
    late_rows=4,
    state_rows_written=9,
    state_rows=90,
    state_bytes=900,
    bytes_in=50,
    spark_jobs=2,
    seconds={"plan": 0.25, "publish": 0.5},
    stages=("read t",),
)
_FAILED = ViewReport("b", 6, "incremental", None, skipped=True, problem="overflow")
_UNCHANGED = ViewReport("c", 7, "full", "why", skipped=True)


def test_what_is_recorded_of_reports(tmp_path: Path, memory: InMemory) -> None:
    given = _reports(_CHANGED, _FAILED, _UNCHANGED)
    assert list(telemetry.recorded(Warehouse(tmp_path), "r1", given)) == [_CHANGED, _FAILED, _UNCHANGED]
    points = memory.points()
    assert set(points) == set(telemetry.METRICS)
    assert points["relstate.epochs"] == {
        ("changed", "incremental", "a"): 1,
        ("failed", "incremental", "b"): 1,
        ("unchanged", "full", "c"): 1,
    }
    assert points["relstate.failures"] == {("b",): 1}
    assert points["relstate.rows.in"] == {("inserted", "t", "a"): 5, ("deleted", "t", "a"): 2}
    assert {k: v for k, v in points["relstate.rows.out"].items() if v} == {("inserted", "a"): 3, ("deleted", "a"): 1}
    assert points["relstate.step.duration"] == {("plan", "a"): 0.25, ("publish", "a"): 0.5}
    assert points["relstate.epoch.duration"] == {("incremental", "a"): 0.75}
    for name, amount in {"rows.late": 4, "read": 50, "state.written": 9, "spark.jobs": 2}.items():
        assert points[f"relstate.{name}"][("a",)] == amount
    assert (points["relstate.state.rows"], points["relstate.state.size"]) == ({("a",): 90}, {("a",): 900})
    assert points["relstate.last.epoch"] == {("a",): 7, ("c",): 7}, "a view that was left behind has reached no epoch"


def test_spans_of_a_run(tmp_path: Path, memory: InMemory) -> None:
    list(telemetry.recorded(Warehouse(tmp_path), "r1", _reports(_CHANGED, _FAILED)))
    plan, publish, changed, failed, run = memory.spans()
    names = [span.name for span in (plan, publish, changed, failed, run)]
    assert names == ["relstate.plan", "relstate.publish", "relstate.view", "relstate.view", "relstate.run"]
    assert [span.parent.span_id for span in (plan, publish, changed, failed)] == [
        *[changed.context.span_id] * 2,
        *[run.context.span_id] * 2,
    ]
    assert (plan.start_time, plan.end_time, publish.end_time) == (changed.start_time, publish.start_time, changed.end_time)
    assert changed.end_time - changed.start_time == 750_000_000
    assert changed.attributes["relstate.stages"] == ("read t",)
    assert (failed.status.is_ok, failed.status.description) == (False, "overflow")
    assert run.attributes["relstate.run_id"] == "r1"


def test_a_run_that_ends_early_ends_its_span_and_the_run(tmp_path: Path, memory: InMemory) -> None:
    closed: list[str] = []

    def reports() -> Generator[ViewReport]:
        try:
            yield _CHANGED
            raise RelstateError("the end")
        finally:
            closed.append("closed")

    passed = telemetry.recorded(Warehouse(tmp_path), "r1", reports())
    next(passed)
    passed.close()
    assert (closed, memory.spans()[-1].status.is_ok) == (["closed"], True)
    with pytest.raises(RelstateError, match="the end"):
        list(telemetry.recorded(Warehouse(tmp_path), "r2", reports()))
    assert memory.spans()[-1].status.description == "the end"


def test_what_exports_may_fail(tmp_path: Path, memory: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_milliseconds: int) -> bool:
        raise RuntimeError("no collector")

    monkeypatch.setattr(memory.meters, "force_flush", fails)
    assert list(telemetry.recorded(Warehouse(tmp_path), "r1", _reports(_CHANGED))) == [_CHANGED]


def test_an_epoch_is_recorded_as_it_is_reported(spark: SparkSession, tmp_path: Path, memory: InMemory) -> None:
    home = Home(spark, tmp_path)
    before = memory.points()
    home.sql("INSERT INTO t VALUES (3, 3), (4, 4); REFRESH")
    points = memory.points()

    def grown(metric: str, *labels: str) -> int:
        return points[metric][labels] - before.get(metric, {}).get(labels, 0)

    assert grown("relstate.rows.in", "inserted", "t", "sums") == 2
    assert [grown("relstate.rows.out", change, "sums") for change in ("inserted", "deleted")] == [1, 1]
    home.sql("INSERT INTO t VALUES (5, 5)")
    (report, *_) = [one for one in EpochRunner(spark, home.warehouse).run() if one.view == "sums"]
    last = [span for span in memory.spans() if span.name == "relstate.view" and span.attributes["relstate.view"] == "sums"][-1]
    assert last.attributes["relstate.epoch"] == report.epoch
    assert memory.points()["relstate.last.epoch"]["sums",] == report.epoch


def _free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def _scraped(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_prometheus_scrapes_the_process_that_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, address = Home(spark, tmp_path), _free_address()
    monkeypatch.setenv(telemetry.METRICS_ADDRESS, address)
    home.sql("INSERT INTO t VALUES (3, 3); REFRESH; INSERT INTO t VALUES (4, 4)")
    text = _scraped(address)
    root = re.escape(home.warehouse.root)
    for line in (
        rf'relstate_epochs_total{{.*outcome="changed".*view="sums",warehouse="{root}"}} 1\.0',
        rf'relstate_rows_out_total{{.*change="inserted".*view="sums",warehouse="{root}"}} 1\.0',
        rf'relstate_step_duration_seconds_count{{.*step="publish",view="sums",warehouse="{root}"}} 1\.0',
        rf'relstate_view_unread_commits{{relation="t",view="sums",warehouse="{root}"}} 1\.0',
    ):
        assert re.search(line, text), f"{line} is not in\n{text}"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv(telemetry.METRICS_ADDRESS, f"127.0.0.1:{other.getsockname()[1]}")
        home.sql("REFRESH; VERIFY")  # views are maintained though another process has the port


@pytest.mark.parametrize("wrong", ["9464", "localhost", "localhost:x", ":80", "127.0.0.1:99999"])
def test_wrong_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv(telemetry.METRICS_ADDRESS, wrong)
    with pytest.raises(DeclarationError, match="write HOST:PORT"):
        list(telemetry.recorded(Warehouse(tmp_path), "r", _reports(_CHANGED)))


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("opentelemetry", "prometheus_client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    home = Warehouse(tmp_path)
    assert list(telemetry.recorded(home, "r", _reports(_CHANGED))) == [_CHANGED]
    monkeypatch.setenv(telemetry.METRICS_ADDRESS, "127.0.0.1:1")
    for asked in (
        lambda: list(telemetry.recorded(home, "r", _reports(_CHANGED))),
        lambda: lags_text(home),
        lambda: serve_lags(home, "127.0.0.1:1"),
    ):
        with pytest.raises(EnvironmentProblem, match=r"relstate-dagster\[metrics\]"):
            asked()


def test_lags_of_views(spark: SparkSession, tmp_path: Path) -> None:
    home = Home(spark, tmp_path)
    where = ["--warehouse", home.warehouse.root]
    text = CliRunner().invoke(app, ["metrics", *where]).stdout
    assert {name for name in LAGS if re.search(rf"^{name}{{", text, re.M)} == set(LAGS)
    root = home.warehouse.root
    assert f'relstate_view_unread_commits{{relation="t",view="sums",warehouse="{root}"}} 0.0' in text
    assert f'relstate_view_behind{{view="sums",warehouse="{root}"}} 0.0' in text
    home.sql("INSERT INTO t VALUES (3, 3); INSERT INTO t VALUES (4, 4)")
    lags = {lag.view: lag for lag in view_lags(Warehouse(root), utc_now() + timedelta(hours=1))}
    assert (lags["sums"].unread, lags["sums"].is_behind, lags["others"].is_behind) == ({"t": 2}, True, False)
    assert 3600 <= lags["sums"].age_seconds < 7200
    list(EpochRunner(spark, home.warehouse).run(["sums"]))
    lags = {lag.view: lag for lag in view_lags(Warehouse(root), utc_now())}
    assert (lags["sums"].unread, lags["over"].unread, lags["over"].is_behind) == ({"t": 0}, {"sums": 1}, True)
    address = _free_address()
    end = serve_lags(home.warehouse, address)
    try:
        assert f'relstate_view_unread_commits{{relation="sums",view="over",warehouse="{root}"}} 1.0' in _scraped(address)
        with pytest.raises(DeclarationError, match="cannot listen there"):
            serve_lags(home.warehouse, address)
    finally:
        end()


def test_a_catalog_that_cannot_be_read_is_said(script: Script, tmp_path: Path) -> None:
    script.run("CREATE TABLE t (k INT)")
    for log in Path(script.warehouse.root, "_relstate", "catalog", "_delta_log").glob("*.json"):
        log.write_text("no log")
    assert f'relstate_catalog_readable{{warehouse="{script.warehouse.root}"}} 0.0' in lags_text(script.warehouse)


def _in_prometheus(name: str) -> str:
    metric = telemetry.METRICS[name]
    unit = {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
    return name.replace(".", "_") + unit + ("_total" if metric.kind == "counter" else "")


def test_the_page_lists_all_metrics() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    of_runs = [
        f"| `{name}` | `{_in_prometheus(name)}` | {m.kind} | {', '.join(f'`{a}`' for a in m.attributes)} | {m.text} |"
        for name, m in telemetry.METRICS.items()
    ]
    of_lags = [
        f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |" for name, (labels, text) in LAGS.items()
    ]
    missing = [line for line in (*of_runs, *of_lags) if line not in text]
    assert not missing, "\n".join(missing)
