"""The pipeline's views are incremental, follow their sources, and are reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from benchmarks.pipeline.section import pipeline_section
from benchmarks.pipeline.stages import pipeline, write_stages
from benchmarks.pipeline.worker import run_in_order
from benchmarks.series import read_series
from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.declare import SourceDeclaration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VIEWS = ("slv_cash_day",)
_TYPES = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64()}


@pytest.mark.parametrize("views", [("cash_month", "sector_rank"), pytest.param((), marks=pytest.mark.nightly)])
def test_views_are_incremental(spark: SparkSession, tmp_path: Path, views: tuple[str, ...]) -> None:
    project, warehouse = pipeline(views), Warehouse(tmp_path)
    for source in project.sources:
        _create_empty(warehouse.source_path(source.name), source)
    state = sync_project(spark, warehouse, project)
    assert len(state.views) == len(project.views)
    assert not [(view.name, view.reason) for view in state.views.values() if view.strategy != "incremental"]


def test_the_views_are_a_deep_chain() -> None:
    project, depth = pipeline(), dict[str, int]()
    for view in project.views:
        depth[view.name] = 1 + max((depth.get(name, 0) for name in project.reads[view.name]), default=0)
    assert len(depth) >= 50
    assert max(depth.values()) >= 5


def _create_empty(path: str, source: SourceDeclaration) -> None:
    """As registering it does, but without Spark, which takes three times as long."""
    schema = pa.schema([(column.name, _TYPES[column.type_text.upper()]) for column in source.columns])
    DeltaTable.create(path, schema, configuration={"delta.enableChangeDataFeed": "true", **source.properties})


def test_some_views_follow_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    project, warehouse = pipeline(_VIEWS), Warehouse(tmp_path / "warehouse")
    names = [source.name for source in project.sources]
    write_stages(tmp_path / "stages", project.sources, 0.001, 2, spark)
    replay = read_series(tmp_path / "stages").replay(tmp_path / "warehouse" / "sources", names)
    sync_project(spark, warehouse, project)
    runner = EpochRunner(spark, warehouse)
    assert {report.view for report in runner.run()} == {view.name for view in project.views}
    replay.advance()
    moved = {report.view: report for report in runner.run()}
    assert moved["slv_cash_day"].rows_inserted
    assert not moved["slv_cash_day"].is_backfill
    assert all(report.equal for report in runner.verify())


def test_views_begin_after_those_that_they_read() -> None:
    project, done = pipeline(), list[str]()

    def begin(view: Any) -> None:
        assert not {name for name in project.reads[view.name] if not name.startswith("raw_")} - set(done)
        done.append(view.name)

    run_in_order(project, 3, begin)
    assert len(done) == len(project.views)


def test_the_report_lists_slow_views() -> None:
    def both(seconds: float) -> dict[str, Any]:
        figures = {"cpu": 9.0, "cpu_others": 1.0, "jobs": 5, "read_bytes": 2_000, "peak_heap": 3e8}
        ours = {"wall": 2.0, "views": {"fact": {"seconds": seconds, "rows": 7}}, **figures}
        return {"ours": ours, "plain": {"wall": 4.0, "views": {"fact": {"seconds": 1.0}}, **figures}, "ratio": 2.0}

    named = {"scenario": "pipeline", "sf": 0.1, "query": "1 views", "size": "3 at once", "status": "ok"}
    text = "\n".join(pipeline_section([{**named, "batches": [both(9.0), both(1.1), both(1.5)]}]))
    assert "| 2 | 2.0 | 4.0 | **2.00** | 9 / 9 | 1 / 1 | 5 / 5 | 2 kB / 2 kB | 300 MB / 300 MB |" in text
    assert "| fact | 3 | 1.50 | 1.00 | 1.5 | 7 |" in text
    assert "| fact | 1 |" not in text
    assert "| fact | 2 |" not in text
