"""The fixed cost of an epoch: hardly any data, a join with an aggregate, and the query with the largest plan."""

from __future__ import annotations

from benchmarks.harness import Bench, plan_nodes
from benchmarks.queries import QUERIES, query_text
from benchmarks.scenarios import tpch
from benchmarks.scenarios.common import Run

SF = 0.01
JOIN_WITH_AGGREGATE = "q12"


def run(run_: Run) -> None:
    """Measure both over a hundred appended rows."""
    tpch.run(run_, [SF], [JOIN_WITH_AGGREGATE, largest_plan(run_)], ["appended"], ["100"], scenario="fixed")


def largest_plan(run_: Run) -> str:
    """The query over orders or lines whose plan has the most nodes."""
    work = run_.work(SF)
    replay = run_.series(SF, "none", "0", 1).replay(work / "planned" / "sources")
    bench = Bench(run_.spark, run_.probe, work / "planned" / "warehouse", replay)
    nodes = {q: plan_nodes(bench.add_view(q, query_text(q, SF))) for q in QUERIES if q not in ("q2", "q11", "q16")}
    return max(nodes, key=lambda q: (nodes[q], q))
