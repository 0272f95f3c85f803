"""avg(x) of whole numbers and decimals: a sum divided by a count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relstate_dagster.jobs.plan.aggregates.count import COUNT
from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, AggregateKind, CallStrategy, Version
from relstate_dagster.jobs.plan.aggregates.sums import SUM, TOTAL, can_be_kept, summed, total, where_any
from relstate_dagster.jobs.plan.decimal_sums import decimal_sum
from relstate_dagster.jobs.plan.nodes import AggCall

#: The sum that a mean of decimals divides. Its name differs from that of earlier versions, which rounded means otherwise: views
#: with such means have another state now, and are rebuilt.
DIVIDEND: Final = "_dividend"


class Average(AggregateKind):
    """The accumulators of a sum, divided on output."""

    name = function = "avg"
    strategy = CallStrategy.VALUE
    description = ("avg(x)", "as sum", "sum / count where count > 0")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Means of sums that are exact in any order."""
        return can_be_kept(call)

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The sum and the count."""
        return summed(call, _sum_column(call))

    def derived(self, call: AggCall, at: Version) -> Mapping[str, str]:
        """The total, where the mean names it many times."""
        return {at[TOTAL]: where_any(total(call, _sum_column(call), at), at)} if _has_total(call) else {}

    def result(self, call: AggCall, at: Version) -> str:
        """The mean, rounded as Spark rounds it."""
        decimals = decimal_sum(call.argument_types[0])
        value = at[TOTAL] if _has_total(call) else total(call, _sum_column(call), at)
        mean = decimals.mean(value, at[COUNT]) if decimals else f"CAST({value} AS double) / CAST({at[COUNT]} AS double)"
        return where_any(f"CAST({mean} AS {call.output.data_type})", at)


def _sum_column(call: AggCall) -> str:
    return DIVIDEND if decimal_sum(call.argument_types[0]) else SUM


def _has_total(call: AggCall) -> bool:
    decimals = decimal_sum(call.argument_types[0])
    return decimals is not None and (decimals.has_high_part or decimals.mean_reads_total)
