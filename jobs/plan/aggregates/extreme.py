"""min(x) and max(x): the first values of a group, beside the counts of all values.

The operator :mod:`.jobs.operators.aggregate_extreme` follows the first values; it computes both accumulators. A group whose
values are all kept there has no counts. Views of earlier plans have counts of all groups (``EARLIER``).
"""

from __future__ import annotations

from typing import Final

from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, AggregateKind, CallStrategy, CountedValues, Version
from relstate_dagster.jobs.plan.nodes import AggCall
from relstate_dagster.state_lib.sql_type import SqlType
from relstate_dagster.state_lib.table_schema import StateKind

#: The first values with their counts, and whether they are all the values of the group.
FIRST: Final = "_first"
COMPLETE: Final = "_complete"


def first_value_type(of_value: SqlType) -> str:
    """The type of a value within an array.

    Delta stores no intervals there, and nothing of type VOID.
    """
    if of_value.name == "void":
        return "boolean"
    return of_value.ddl if of_value.interval_unit is None else "bigint"


def value_of_first(call: AggCall, kept: str) -> str:
    """The value (SQL) of one of the first values, NULL of none."""
    of_value = call.types[0]
    if of_value.name == "void":
        return "NULL"
    return f"{kept}.value" if of_value.interval_unit is None else f"INTERVAL {of_value.interval_unit} * {kept}.value"


class Extreme(AggregateKind):
    """The least or the greatest value, over an input that may lose rows."""

    strategy = CallStrategy.EXTREME

    def __init__(self, name: str, function: str, *, descending: bool, only_of_others: bool = True) -> None:
        self.name, self.function = name, function
        self.counted = CountedValues(StateKind.EXTREME_STATE, descending, only_of_others)
        self.description = (f"{function}(x)", "the first of the changed values, with Σ w each", "the first of the first values")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Calls over an input that is not append-only; DISTINCT makes no difference."""
        return len(call.arguments) == 1 and not append_only

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The first values, and whether there are others."""
        values = f"array<struct<`value`: {first_value_type(call.types[0])}, `count`: bigint>>"
        return Accumulator(FIRST, values), Accumulator(COMPLETE, "boolean")

    def result(self, call: AggCall, at: Version) -> str:
        """The first value; NULL where there is none."""
        return f"CAST({value_of_first(call, f'get({at[FIRST]}, 0)')} AS {call.output.data_type})"


KINDS: Final = (Extreme("least", "min", descending=False), Extreme("greatest", "max", descending=True))
#: Of earlier plans.
EARLIER: Final = (
    Extreme("min", "min", descending=False, only_of_others=False),
    Extreme("max", "max", descending=True, only_of_others=False),
)
