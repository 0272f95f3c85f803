"""sum(x) and avg(x) of floating-point numbers: exact, and rounded once.

Spark's own result depends on the order of its rows. This one does not, so that it can be kept without the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relstate_dagster.jobs.plan import float_sums
from relstate_dagster.jobs.plan.aggregates.count import COUNT, counted
from relstate_dagster.jobs.plan.aggregates.distinct import Distinct
from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, AggregateKind, CallStrategy, Version
from relstate_dagster.jobs.plan.aggregates.sums import TOTAL, where_any
from relstate_dagster.jobs.plan.nodes import AggCall
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.sql_text import quoted

#: The sums of the digits of all values.
DIGITS: Final = "_digits"


class FloatSum(AggregateKind):
    """The digits of the exact sum, and the number of values."""

    name, function = "exact sum", "sum"
    strategy = CallStrategy.VALUE
    spares_rows = True
    description = ("sum(x) of floats", "Σ w of each digit of x, and the count", "the exact sum, rounded")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Calls of floating-point numbers that are not DISTINCT."""
        return not call.distinct and len(call.arguments) == 1 and call.types[0].name in ("double", "float")

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The digits, and the count."""
        zeros, kept_as = float_sums.ZEROS, float_sums.KEPT_AS
        value = f"CAST({quoted(call.arguments[0])} AS DOUBLE)"
        digits = Accumulator(
            DIGITS,
            kept_as,
            float_sums.change(value, WEIGHT, call.label),
            zeros,
            lambda old, changed: f"zip_with({old}, coalesce({changed}, {zeros}), (a, b) -> a + b)",
        )
        return digits, counted(call)

    def derived(self, _call: AggCall, at: Version) -> Mapping[str, str]:
        """The sum."""
        return {at[TOTAL]: where_any(float_sums.total(at[DIGITS], at[COUNT]), at)}

    def result(self, _call: AggCall, at: Version) -> str:
        """The sum."""
        return at[TOTAL]


class FloatAverage(FloatSum):
    """The accumulators of a sum, divided on output.

    Of calls that are not planned as a sum and a count (:mod:`.jobs.planner.decompose`).
    """

    name, function = "exact avg", "avg"
    description = ("avg(x) of floats", "as sum", "this sum / count where count > 0")

    def result(self, _call: AggCall, at: Version) -> str:
        """The mean."""
        return where_any(f"{at[TOTAL]} / CAST({at[COUNT]} AS DOUBLE)", at)


KINDS: Final = (*(_KEPT := (FloatSum(), FloatAverage())), *map(Distinct, _KEPT))
