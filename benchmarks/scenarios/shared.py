"""Twenty views in one run, against each in a warehouse of its own."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Bench
from benchmarks.measure import quantile
from benchmarks.queries import tables_of
from benchmarks.scenarios.common import Run
from benchmarks.scenarios.idle import many_views
from relstate_dagster.jobs.api import EpochRunner


def run(run_: Run, sf: float, views: int = 20, size: str = "100") -> None:
    """Measure it once."""
    named = {"scenario": "shared", "sf": sf, "query": f"{views} views", "stream": "appended", "size": size}
    run_.record(named, lambda: measure(run_, sf, views, size), line)


def line(record: dict[str, Any]) -> str:
    """One line."""
    return f"together {record['together_p50']:.2f} s, alone {record['alone_p50']:.2f} s in all: {record['ratio']:.2f} times"


def measure(run_: Run, sf: float, views: int, size: str) -> dict[str, Any]:
    """The same epochs in one warehouse with all views, and in one warehouse a view."""
    series = run_.series(sf, "appended", size)
    queries = {name: q for name, q in many_views(50, sf).items() if {"orders", "lineitem"} & set(tables_of(q))}
    queries = dict(list(queries.items())[:views])
    work = run_.work(sf)
    together = Bench(run_.spark, run_.probe, work / "together", series.replay(work / "sources"))
    together.runner = EpochRunner(run_.spark, together.warehouse)
    alone = []
    for name, query in queries.items():
        together.add_view(name, query)
        one = Bench(run_.spark, run_.probe, work / name, together.replay)
        one.add_view(name, query)
        alone.append(one)
    for bench in (together, *alone):
        bench.epoch()
    all_at_once, one_by_one = [], []
    for number in range(series.epochs):
        together.replay.advance()
        walls = [bench.epoch()[1].wall for bench in (together, *alone)]
        if number >= run_.warm_up:
            all_at_once.append(walls[0])
            one_by_one.append(sum(walls[1:]))
    together.verify()
    run_.drop_series(series)
    p50 = quantile(all_at_once, 0.5), quantile(one_by_one, 0.5)
    return {"views": len(queries), "together_p50": p50[0], "alone_p50": p50[1], "ratio": p50[1] / p50[0]}
