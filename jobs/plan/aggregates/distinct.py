"""DISTINCT calls: accumulators over the values that occur in a group.

The counts of all values are kept beside them. The operator :mod:`.jobs.operators.aggregate_distinct` finds the values that
appear or disappear. Another kind's accumulators fold these as they fold rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relstate_dagster.jobs.plan.aggregates.kind import (
    Accumulator,
    AggregateKind,
    CallStrategy,
    CountedValues,
    Version,
    value_column,
)
from relstate_dagster.jobs.plan.nodes import AggCall
from relstate_dagster.state_lib.table_schema import StateKind


class Distinct(AggregateKind):
    """The DISTINCT calls of a function whose other calls are kept in value state."""

    strategy = CallStrategy.DISTINCT
    counted = CountedValues(StateKind.DISTINCT_STATE)

    def __init__(self, base: AggregateKind) -> None:
        self._base = base
        self.name, self.function = f"distinct {base.name}", base.function
        _, change, result = base.description
        self.description = (f"{base.function}(DISTINCT x)", f"{change}, of values that come or go", result)

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """DISTINCT calls that the other kind would take without."""
        return call.distinct and self._base.takes(replace(call, distinct=False), append_only=append_only)

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The other kind's accumulators, over the counted values."""
        values = tuple(value_column(n) for n in range(len(call.arguments)))
        return self._base.accumulators(replace(call, arguments=values))

    def derived(self, call: AggCall, at: Version) -> Mapping[str, str]:
        """Derived columns of the inner kind."""
        return self._base.derived(call, at)

    def result(self, call: AggCall, at: Version) -> str:
        """The other kind's result."""
        return self._base.result(call, at)
