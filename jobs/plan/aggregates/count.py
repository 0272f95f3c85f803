"""count(*), and count(x): the rows with no NULL among the arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, AggregateKind, CallStrategy, Version, added
from relstate_dagster.jobs.plan.nodes import AggCall
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.sql_text import quoted

COUNT: Final = "_count"


def counted(call: AggCall) -> Accumulator:
    """The number of rows with no NULL among the arguments of a call."""
    present = " AND ".join(f"{quoted(argument)} IS NOT NULL" for argument in call.arguments) or "true"
    count = added(COUNT, "bigint", f"coalesce(sum(IF({present}, {WEIGHT}, NULL)), 0L)")
    return replace(count, at_least_zero=lambda value: f"greatest({value}, 0L)")


class Count(AggregateKind):
    """Σ w of the rows that count."""

    name = function = "count"
    strategy = CallStrategy.VALUE
    reads_values = False
    description = (r"count(\*), count(x)", "Σ w, where x is not NULL", "count")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Every call that is not DISTINCT."""
        return not call.distinct

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The count."""
        return (counted(call),)

    def result(self, _call: AggCall, at: Version) -> str:
        """The count."""
        return at[COUNT]
