"""Fifty unchanged views: seconds of a run that must start no Spark job."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Bench
from benchmarks.measure import quantile
from benchmarks.queries import QUERIES, query_text
from benchmarks.scenarios.common import Run

#: Group columns of the views that fill up the number after TPC-H's own.
_COLUMNS = (
    ("lineitem", "l_quantity", ("l_returnflag", "l_linestatus", "l_shipmode", "l_shipinstruct", "l_linenumber", "l_suppkey")),
    ("orders", "o_totalprice", ("o_orderstatus", "o_orderpriority", "o_clerk", "o_orderdate", "o_custkey")),
    ("customer", "c_acctbal", ("c_nationkey", "c_mktsegment")),
    ("part", "p_retailprice", ("p_brand", "p_type", "p_size", "p_container", "p_mfgr")),
)


def many_views(count: int, sf: float) -> dict[str, str]:
    """Many views: simple aggregates first, then TPC-H's queries."""
    simple = {}
    for way in ("sum", "avg", "count"):
        for table, value, columns in _COLUMNS:
            for column in columns:
                simple[f"{way}_by_{column}"] = f"SELECT {column}, {way}({value}) AS v FROM {table} GROUP BY {column}"
    views = {**dict(list(simple.items())[: max(0, count - len(QUERIES))]), **{q: query_text(q, sf) for q in QUERIES}}
    return dict(list(views.items())[:count])


def run(run_: Run, sf: float, views: int = 50) -> None:
    """Measure it once."""
    named = {"scenario": "idle", "sf": sf, "query": f"{views} views", "stream": "none", "size": "0"}
    run_.record(named, lambda: measure(run_, sf, views), line)


def line(record: dict[str, Any]) -> str:
    """One line."""
    return f"{record['wall_p50']:.3f} s (p95 {record['wall_p95']:.3f}), {record['jobs']} Spark jobs"


def measure(run_: Run, sf: float, views: int) -> dict[str, Any]:
    """Backfill all views, then run with nothing changed."""
    replay = run_.series(sf, "none", "0", 1).replay(run_.work(sf) / "sources")
    bench = Bench(run_.spark, run_.probe, run_.work(sf) / "warehouse", replay)
    for name, query in many_views(views, sf).items():
        bench.add_view(name, query)
    _, backfill, _ = bench.epoch()
    samples = [bench.epoch()[1] for _ in range(run_.warm_up + run_.epochs)][run_.warm_up :]
    jobs = sum(s.jobs for s in samples)
    if jobs:
        raise RuntimeError(f"{jobs} Spark jobs ran though nothing had changed")
    walls = [s.wall for s in samples]
    return {
        "views": views,
        "wall_p50": quantile(walls, 0.5),
        "wall_p95": quantile(walls, 0.95),
        "jobs": jobs,
        "backfill": backfill.to_dict(),
    }
