"""The fixed cost of an epoch: hardly any data, two queries.

A join with an aggregate, and the query with the largest plan.
"""

from __future__ import annotations

from benchmarks.scenarios import tpch
from benchmarks.scenarios.common import Run

SF = 0.01
#: Orders joined with lines, two sums a ship mode: eleven nodes.
JOIN_WITH_AGGREGATE = "q12"
#: Eight relations: 36 nodes, more than any other query that orders and lines change.
LARGEST_PLAN = "q8"


def run(run_: Run) -> None:
    """Measure both over a hundred appended rows."""
    tpch.run(run_, [SF], [JOIN_WITH_AGGREGATE, LARGEST_PLAN], ["appended"], ["100"], scenario="fixed")
