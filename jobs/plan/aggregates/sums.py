"""sum(x) of whole numbers and decimals: kept wide and checked on output.

An overflow is then one of the result and not of the order in which changes came. Long decimals are summed in two parts
(:mod:`.jobs.plan.decimal_sums`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relstate_dagster.jobs.plan.aggregates.count import COUNT, counted
from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, AggregateKind, CallStrategy, Version, added
from relstate_dagster.jobs.plan.decimal_sums import decimal_sum
from relstate_dagster.jobs.plan.nodes import AggCall
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.sql_type import sql_type

SUM: Final = "_sum"
#: The part of a sum of long decimals that is above the low one.
HIGH: Final = "_sum_high"
#: A total that a result names more than once.
TOTAL: Final = "_total"
#: The bits of a BIGINT, whose sums need a wider type.
_LONG: Final = 64


def can_be_kept(call: AggCall) -> bool:
    """Whether the sum of a call's argument can be kept in accumulators."""
    if call.distinct or len(call.arguments) != 1:
        return False
    decimals = decimal_sum(call.argument_types[0])
    return decimals.can_be_kept if decimals else call.types[0].is_exact


def sum_type(argument_type: str) -> str:
    """The type of a running sum that overflows no earlier than its result.

    For long decimals it is the type of the low part; the high one is a BIGINT.
    """
    decimals = decimal_sum(argument_type)
    if decimals:
        return decimals.kept_as
    return "decimal(38,0)" if sql_type(argument_type).bits == _LONG else "bigint"


def summed(call: AggCall, column: str) -> tuple[Accumulator, ...]:
    """The sum of a call's argument, in one part or two, and its count."""
    (data_type,), value = call.argument_types, quoted(call.arguments[0])
    decimals, kept_as = decimal_sum(data_type), sum_type(data_type)
    if decimals:
        weighted = decimals.weighted(value, WEIGHT)
    else:
        weight = f"CAST({WEIGHT} AS decimal(18,0))" if call.types[0].bits == _LONG else WEIGHT
        weighted = f"CAST({value} AS {kept_as}) * {weight}"
    parts = [added(column, kept_as, f"coalesce(CAST(sum({weighted}) AS {kept_as}), CAST(0 AS {kept_as}))")]
    if decimals and decimals.has_high_part:
        parts.append(added(HIGH, "bigint", f"coalesce(sum({decimals.weighted_high(value, WEIGHT)}), 0L)"))
    return (*parts, counted(call))


def total(call: AggCall, column: str, at: Version) -> str:
    """The total of a sum in Spark's type, where there are rows."""
    decimals = decimal_sum(call.argument_types[0])
    return decimals.total(at[column], at[HIGH] if decimals.has_high_part else None) if decimals else at[column]


def where_any(value: str, at: Version) -> str:
    """A value, or NULL where a group has no value but NULL."""
    return f"IF({at[COUNT]} > 0, {value}, NULL)"


class Sum(AggregateKind):
    """Σ w·x, and the number of values."""

    name = function = "sum"
    strategy = CallStrategy.VALUE
    description = ("sum(x)", "Σ w·x and Σ w where x is not NULL", "sum where count > 0, else NULL")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Sums that are exact in any order."""
        return can_be_kept(call)

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The sum and the count."""
        return summed(call, SUM)

    def derived(self, call: AggCall, at: Version) -> Mapping[str, str]:
        """The total out of two parts."""
        return {at[TOTAL]: where_any(total(call, SUM, at), at)} if self._has_parts(call) else {}

    def result(self, call: AggCall, at: Version) -> str:
        """The sum; an overflow raises."""
        value = at[TOTAL] if self._has_parts(call) else total(call, SUM, at)
        return where_any(f"CAST({value} AS {call.output.data_type})", at)

    @staticmethod
    def _has_parts(call: AggCall) -> bool:
        decimals = decimal_sum(call.argument_types[0])
        return decimals is not None and decimals.has_high_part
