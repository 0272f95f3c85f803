"""Other systems over the same stream of appended rows, for the same queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from benchmarks.measure import quantile
from benchmarks.peers import duckdb_full, pathway_views, pg_ivm
from benchmarks.scenarios.common import Run

PEERS: dict[str, ModuleType] = {"duckdb": duckdb_full, "pg_ivm": pg_ivm, "pathway": pathway_views}


def run(run_: Run, sfs: Sequence[float], queries: Sequence[str], size: str, peers: Sequence[str]) -> None:
    """Measure every query that is not measured yet, with the peers that are installed."""
    missing = {peer: PEERS[peer].missing() for peer in peers}
    for reason in filter(None, missing.values()):
        run_.console.print(reason, style="yellow")
    for sf in sfs:
        series = run_.series(sf, "appended", size)
        for peer in (p for p in peers if missing[p] is None):
            named = {"scenario": peer, "sf": sf, "stream": "appended", "size": size}
            todo = [q for q in queries if not run_.results.has(query=q, **named)]
            # A peer loads its tables once for all queries, so each record asks it for the next.
            found = PEERS[peer].measure(series, sf, todo)
            for query in todo:
                run_.record({**named, "query": query}, partial(_next, run_, found), line)
        run_.drop_series(series)


def _next(run_: Run, measured: Iterator[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    try:
        _, found = next(measured)
    except StopIteration:
        raise RuntimeError("an earlier query has failed, and the peer with it") from None
    if "refused" in found:
        return {"status": "refused", "reason": found["refused"]}
    walls = found["walls"][run_.warm_up :]
    return {**found, "wall_p50": quantile(walls, 0.5), "wall_p95": quantile(walls, 0.95)}


def line(record: dict[str, Any]) -> str:
    """One line."""
    return f"{record['scenario']} {record['wall_p50']:.3f} s an epoch"
