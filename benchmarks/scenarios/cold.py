"""A scheduled run: from a fresh process to the published view."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Bench, start_spark
from benchmarks.measure import quantile
from benchmarks.queries import query_text, tables_of
from benchmarks.scenarios.common import Run
from relstate_dagster.jobs.api import EpochRunner, Warehouse

_ROOT = Path(__file__).resolve().parents[2]


def run(run_: Run, sf: float, query: str = "q12", epochs: int = 5, size: str = "100") -> None:
    """Measure it once."""
    named = {"scenario": "cold", "sf": sf, "query": query, "stream": "appended", "size": size}
    run_.record(named, lambda: measure(run_, sf, query, epochs, size), line)


def line(record: dict[str, Any]) -> str:
    """One line."""
    parts = ", ".join(f"{k} {v:.1f}" for k, v in record["parts"].items())
    return f"{record['wall_p50']:.1f} s from start to end of the process ({parts})"


def measure(run_: Run, sf: float, query: str, epochs: int, size: str) -> dict[str, Any]:
    """Each epoch in a process of its own; this process's Spark is idle meanwhile."""
    text = query_text(query, sf)
    work = run_.work(sf)
    series = run_.series(sf, "appended", size, epochs)
    bench = Bench(run_.spark, run_.probe, work / "warehouse", series.replay(work / "sources", tables_of(text)))
    bench.add_view(query, text)
    bench.epoch()
    walls, parts = [], []
    for _ in range(series.epochs):
        bench.replay.advance()
        started = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.scenarios.cold", bench.warehouse.root, run_.memory]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=_ROOT)
        walls.append(time.perf_counter() - started)
        parts.append(json.loads(done.stdout.splitlines()[-1]))
    bench.verify()
    run_.drop_series(series)
    return {
        "wall_p50": quantile(walls, 0.5),
        "wall_p95": quantile(walls, 0.95),
        "parts": {k: quantile([p[k] for p in parts], 0.5) for k in parts[0]},
        "verified": True,
    }


def one_epoch(root: str, memory: str) -> None:
    """One epoch in a fresh process; prints the seconds of its parts."""
    started = time.perf_counter()
    spark = start_spark(memory)
    session = time.perf_counter() - started
    started = time.perf_counter()
    list(EpochRunner(spark, Warehouse(root)).run())
    print(json.dumps({"session": session, "epoch": time.perf_counter() - started}), flush=True)


if __name__ == "__main__":
    one_epoch(sys.argv[1], sys.argv[2])
