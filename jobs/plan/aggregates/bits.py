"""bit_xor(x), bit_or(x) and bit_and(x) of whole numbers.

An exclusive or cancels a value that occurs an even number of times, so a deletion changes it like an insertion. The other two
count the values with each bit set. Over append-only input, all three keep the value itself.
"""

from __future__ import annotations

from typing import Final

from relstate_dagster.jobs.plan.aggregates.count import COUNT, counted
from relstate_dagster.jobs.plan.aggregates.distinct import Distinct
from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, AggregateKind, CallStrategy, Version
from relstate_dagster.jobs.plan.aggregates.sums import where_any
from relstate_dagster.jobs.plan.nodes import AggCall
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.sql_text import quoted

BITS: Final = "_bits"
#: How many values have each bit, the lowest bit first.
BIT_COUNTS: Final = "_bit_counts"


class BitXor(AggregateKind):
    """The exclusive or of the values that are there an odd number of times."""

    name = function = "bit_xor"
    strategy = CallStrategy.VALUE
    description = ("bit_xor(x)", "xor of x where w is odd, and the count", "xor where count > 0, else NULL")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Calls of whole numbers that are not DISTINCT."""
        return call.types[0].bits is not None and not call.distinct

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The value, and the count."""
        (data_type,), value = call.argument_types, quoted(call.arguments[0])
        zero = f"CAST(0 AS {data_type})"
        bits = Accumulator(
            BITS,
            data_type,
            f"bit_xor(IF({WEIGHT} % 2 = 0, NULL, {value}))",
            zero,
            lambda old, changed: f"CAST({old} ^ coalesce({changed}, {zero}) AS {data_type})",
        )
        return bits, counted(call)

    def result(self, _call: AggCall, at: Version) -> str:
        """The value."""
        return where_any(at[BITS], at)


class BitCounts(AggregateKind):
    """The bits of any value, or of all, over an input that may lose rows."""

    strategy = CallStrategy.VALUE

    def __init__(self, function: str, *, of_all: bool) -> None:
        self.name = self.function = function
        self._of_all = of_all
        self.description = (
            f"{function}(x)",
            "for each bit, Σ w where x has it, and the count",
            f"the bits that {'all values have' if of_all else 'a value has'} where count > 0, else NULL",
        )

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Calls over an input that is not append-only; DISTINCT makes no difference."""
        return call.types[0].bits is not None and not append_only

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The count of each bit, and of the values."""
        width, value = _width(call), f"CAST({quoted(call.arguments[0])} AS bigint)"
        sums = (f"coalesce(sum(IF({value} & shiftleft(1L, {bit}) != 0, {WEIGHT}, 0L)), 0L)" for bit in range(width))
        zeros = f"array_repeat(0L, {width})"
        counts = Accumulator(
            BIT_COUNTS,
            "array<bigint>",
            f"array({', '.join(sums)})",
            zeros,
            lambda old, changed: f"zip_with({old}, coalesce({changed}, {zeros}), (a, b) -> a + b)",
            lambda counts: f"transform({counts}, c -> greatest(c, 0L))",
        )
        return counts, counted(call)

    def result(self, call: AggCall, at: Version) -> str:
        """The bits, put together as a BIGINT: the highest one is the sign."""
        (data_type,) = call.argument_types
        is_there = f"c = {at[COUNT]}" if self._of_all else "c > 0"
        value = f"shiftleft(IF(bit = {_width(call) - 1}, -1L, 1L), bit)"
        bits = f"transform({at[BIT_COUNTS]}, (c, bit) -> IF({is_there}, {value}, 0L))"
        return where_any(f"CAST(aggregate({bits}, 0L, (a, b) -> a | b) AS {data_type})", at)


class AppendOnlyBits(AggregateKind):
    """The bits of any value, or of all, over an append-only input."""

    strategy = CallStrategy.VALUE

    def __init__(self, function: str, operator: str) -> None:
        self.name, self.function, self._operator = f"append-only {function}", function, operator
        self.description = (f"{function}(x), append-only", f"{function} of x", f"{function} of old and change")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Calls over an append-only input; DISTINCT makes no difference."""
        return call.types[0].bits is not None and append_only

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The value, NULL where a group has no value but NULL."""
        change, operator = f"{self.function}({quoted(call.arguments[0])})", self._operator
        return (
            Accumulator(
                BITS,
                call.argument_types[0],
                change,
                new=lambda old, changed: f"coalesce({old} {operator} {changed}, {old}, {changed})",
            ),
        )

    def result(self, _call: AggCall, at: Version) -> str:
        """The value."""
        return at[BITS]


def _width(call: AggCall) -> int:
    """The bits of a call's argument."""
    bits = call.types[0].bits
    assert bits is not None
    return bits


KINDS: Final = (
    BitXor(),
    Distinct(BitXor()),
    BitCounts("bit_or", of_all=False),
    BitCounts("bit_and", of_all=True),
    AppendOnlyBits("bit_or", "|"),
    AppendOnlyBits("bit_and", "&"),
)
