"""Any other aggregate of Spark, which computes affected groups from the input that is kept."""

from __future__ import annotations

from typing import Final

from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, AggregateKind, CallStrategy, Version
from relstate_dagster.jobs.plan.nodes import AggCall

#: Of whole numbers and decimals, the result is the same in any order.
_ANY_ORDER: Final = frozenset({"sum", "avg", "count", "min", "max", "bit_and", "bit_or", "bit_xor", "percentile", "median"})


class Materialized(AggregateKind):
    """Calls of every function, and of any input."""

    name = "materialized"
    function = ""
    strategy = CallStrategy.MATERIALIZED_INPUT
    description = ("any other call", "Spark's own call over the group's rows", "the same")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Every call."""
        return True

    def accumulators(self, _call: AggCall) -> tuple[Accumulator, ...]:
        """None: the result is computed again from the rows of the group."""
        return ()

    def result(self, call: AggCall, at: Version) -> str:
        """Spark's own result."""
        return f"CAST({at['']} AS {call.output.data_type})"


MATERIALIZED: Final = Materialized()


def depends_on_order(call: AggCall) -> bool:
    """Whether Spark may give a call another result for the same rows in another order."""
    return call.function not in _ANY_ORDER or not all(argument.is_exact for argument in call.types)
