"""One query measured from end to end, resumed, and reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import write_report
from benchmarks.results import Results, newest
from benchmarks.scenarios import tpch
from benchmarks.scenarios.common import Run
from tests.benchmarks.test_streams import write_tiny

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_is_measured_verified_and_not_measured_again(spark: SparkSession, tmp_path: Path) -> None:
    write_tiny(tmp_path / "sf0.001" / "parquet", orders=100)
    file = tmp_path / "results.jsonl"
    run = Run(tmp_path, Results(file), epochs=2, warm_up=0, fail_fast=True)
    tpch.run(run, [0.001], ["q12", "q11"], ["appended"], ["100"])
    records = {r["query"]: r for r in newest([file])}
    assert records["q11"]["status"] == "unaffected"
    q12 = records["q12"]
    assert q12["verified"]
    assert len(q12["epochs"]) == 2
    assert q12["incremental"]["wall_p50"] > 0 < q12["full"]["jobs"]
    assert q12["written"]["state"]["commits"] == 1
    assert q12["state_bytes"] > 0 < q12["input_bytes"]
    assert not (tmp_path / "sf0.001" / "series").exists() or not list((tmp_path / "sf0.001" / "series").iterdir())

    again = Results(file)
    tpch.run(Run(tmp_path, again), [0.001], ["q12", "q11"], ["appended"], ["100"])
    assert len(file.read_text().splitlines()) == 2

    text = write_report(newest([file]), tmp_path / "docs").read_text()
    assert "| q12 |" in text
    assert "Not touched by this stream: q11" in text
    assert "<svg" in (tmp_path / "docs" / "benchmarks" / "ratio-appended-100.svg").read_text()
    assert str(tmp_path) not in text


def test_a_broken_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    results = Results(file)
    results.add({"scenario": "tpch", "sf": 1.0, "query": "q1", "stream": "none", "size": "0", "status": "ok"})
    results.add(
        {"scenario": "tpch", "sf": 1.0, "query": "q2", "stream": "none", "size": "0", "status": "failed", "error": "no"}
    )
    file.write_text(file.read_text() + '{"scenario": "tp')
    found = Results(file)
    assert found.has(scenario="tpch", sf=1.0, query="q1", stream="none", size="0")
    assert not found.has(scenario="tpch", sf=1.0, query="q2", stream="none", size="0")
    assert len(results.failures) == 1
