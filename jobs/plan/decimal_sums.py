"""Exact sums and means of decimals, as SQL text.

A decimal of Spark has 38 digits, and so have its sums: partial sums of values near that end overflow though the result fits.
So what a sum keeps has room for 10¹⁰ of the values it adds. Where a value has too many digits, x = high · M + low is added in
two parts, each with that room: low as a decimal, high as a BIGINT. M is a power of ten that nearly all real values are below.

Spark's operators on decimals round where a result needs more than 38 digits. What is written here stays below, or is a whole
number: a product of whole numbers and a remainder are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from relstate_dagster.state_lib.sql_type import sql_type

#: The digits of Spark's longest decimals.
MOST_DIGITS: Final = 38
#: A sum of Spark's has ten digits more than what is summed.
_ROOM: Final = 10
#: Spark keeps this many digits after the point, however many an operation's result needs before it.
_KEPT_SCALE: Final = 6
#: The digits of a DOUBLE that are exact: Spark computes means of shorter results in floating point.
_DOUBLE_DIGITS: Final = 15
#: A total is divided in two steps, by the digits in front of the last 20 first: both quotients fit into exact types.
_LAST_DIGITS: Final = 20
#: Digits of a count of rows, as Spark casts it to divide by it.
_COUNT_DIGITS: Final = 20


def decimal_parts(data_type: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type, else ``None``."""
    return sql_type(data_type).decimal


@dataclass(frozen=True, slots=True)
class DecimalSum:
    """State columns, total and mean of a decimal sum, as SQL text.

    Parameters
    ----------
    precision, scale : of the summed values.
    """

    precision: int
    scale: int

    @property
    def _kept_digits(self) -> int:
        # Two decimals of 38 digits add up to 39, and Spark then gives up a digit after the point, unless there are no more
        # than six. With one digit less no sum of two loses any.
        return MOST_DIGITS if self.scale <= _KEPT_SCALE else MOST_DIGITS - 1

    @property
    def can_be_kept(self) -> bool:
        """Whether a decimal type can hold the sum."""
        return self.scale <= self._kept_digits

    @property
    def kept_as(self) -> str:
        """The type in which the sum, or its low part, is kept."""
        return f"decimal({self._kept_digits},{self.scale})"

    @property
    def _low_digits(self) -> int:
        return self._kept_digits - _ROOM

    @property
    def has_high_part(self) -> bool:
        """Whether values are summed in two parts."""
        return self.precision > self._low_digits

    def weighted(self, value: str, weight: str) -> str:
        """A value's low part times a weight."""
        digits = self.precision
        if self.has_high_part:
            digits = max(self._low_digits, self.scale)
            below = f"{value} % {_power(self._low_digits - self.scale)}"
            value = f"CAST(IF({self._is_low(value)}, {value}, {below}) AS decimal({digits},{self.scale}))"
        free = min(MOST_DIGITS - 1 - digits, 18)
        if free >= _ROOM - 1:
            many = f"{value} * CAST({weight} AS decimal({free},0))"
        else:
            # The product would lose digits to keep its precision at 38: add the value as often as it occurs instead.
            wide, zero = f"CAST({value} AS {self.kept_as})", f"CAST(0 AS {self.kept_as})"
            copies = f"array_repeat(IF({weight} < 0, {zero} - {wide}, {wide}), CAST(abs({weight}) AS INT))"
            many = f"aggregate({copies}, {zero}, (total, x) -> CAST(total + x AS {self.kept_as}))"
        # Spark's unary minus keeps 34 digits of a decimal only; a subtraction keeps them all.
        negative = f"CAST(0 AS decimal({digits},{self.scale})) - {value}"
        return f"CASE {weight} WHEN 1 THEN {value} WHEN -1 THEN {negative} ELSE {many} END"

    def weighted_high(self, value: str, weight: str) -> str:
        """The high part of a value, a BIGINT, times a weight."""
        return f"IF({self._is_low(value)}, 0L, {value} div {_power(self._low_digits - self.scale)}) * {weight}"

    def _is_low(self, value: str) -> str:
        unit = _power(self._low_digits - self.scale)
        return f"{value} > -{unit} AND {value} < {unit}"

    def total(self, low: str, high: str | None) -> str:
        """The total in Spark's type; overflows only if the total does."""
        data_type = f"decimal({min(self.precision + _ROOM, MOST_DIGITS)},{self.scale})"
        if high is None:
            return f"CAST({low} AS {data_type})"
        unit = _power(self._low_digits - self.scale)
        # Digits of the low sum that belong to the high part are carried over; then a unit more, if their signs differ, so that
        # the high part alone overflows only where the whole does.
        above, below = f"({high} + {low} div {unit})", f"({low} % {unit})"
        borrows = (f"{above} > 0 AND {below} < 0", f"{above} < 0 AND {below} > 0")
        above_of_sign = f"CASE WHEN {borrows[0]} THEN {above} - 1L WHEN {borrows[1]} THEN {above} + 1L ELSE {above} END"
        below_of_sign = f"CASE WHEN {borrows[0]} THEN {below} + {unit} WHEN {borrows[1]} THEN {below} - {unit} ELSE {below} END"
        whole = (
            f"CAST({above_of_sign} AS decimal({_COUNT_DIGITS},0)) * {_power(self._low_digits)}"
            f" + CAST(({below_of_sign}) * {_power(self.scale)} AS decimal({MOST_DIGITS},0))"
        )
        return f"IF({high} = 0, CAST({low} AS {data_type}), {_shifted(whole, self.scale, data_type)})"

    @property
    def _mean_parts(self) -> tuple[int, int]:
        return min(self.precision + 4, MOST_DIGITS), min(self.scale + 4, MOST_DIGITS)

    @property
    def mean_reads_total(self) -> bool:
        """Whether :meth:`mean` names its total many times, so that it should be a column."""
        return self.precision + 4 > _DOUBLE_DIGITS

    def mean(self, total: str, count: str) -> str:
        """The mean, rounded once as Spark rounds it."""
        precision, scale = self._mean_parts
        data_type = f"decimal({precision},{scale})"
        if not self.mean_reads_total:
            # Spark's optimizer (DecimalAggregates) has the mean of the unscaled values computed in floating point, so that a
            # tie may be rounded to either side.
            units = f"CAST({total} * {_power(self.scale)} AS double)"
            return f"CAST({units} / CAST({count} AS double) / 1e{self.scale}D AS {data_type})"
        # A quotient of Spark's has this many digits more than the mean. It is rounded twice, which makes no difference while
        # the count is shorter: next to a tie, the mean is at least 1 / (2 · count) of its last digit away.
        spare = 28 - self.precision + self.scale - scale
        exact = self._mean_by_steps(total, count)
        if spare < _ROOM // 2:
            return exact
        once = f"CAST({total} / CAST({count} AS decimal({_COUNT_DIGITS},0)) AS {data_type})"
        return f"IF({count} < {10**spare}L, {once}, {exact})"

    def _mean_by_steps(self, total: str, count: str) -> str:
        """Long division of a total by a count, digit group by digit group."""
        precision, scale = self._mean_parts
        unit = _power(_LAST_DIGITS - self.scale)
        n = f"CAST({count} AS decimal({_COUNT_DIGITS},0))"
        above = f"({total} div {unit})"
        below = f"CAST(({total} % {unit}) * {_power(self.scale)} AS decimal({_LAST_DIGITS},0))"
        rest = f"(CAST({above} % {count} AS decimal(18,0)) * {_power(_LAST_DIGITS)} + {below})"
        quotient = f"CAST(({rest} - {rest} % {n}) / {n} AS decimal({_LAST_DIGITS + 1},0))"
        more = scale - self.scale
        last = f"({rest} % {n} * {_power(more)})"
        left = f"({last} % {n})"
        rounded = f"IF(abs({left}) * 2 >= {n}, IF({left} < 0, -1, 1), 0)"
        whole = (
            f"CAST({above} div {count} AS decimal(18,0)) * {_power(_LAST_DIGITS + more)}"
            f" + {quotient} * {_power(more)} + ({last} div {n} + {rounded})"
        )
        return _shifted(whole, scale, f"decimal({precision},{scale})")


def decimal_sum(data_type: str) -> DecimalSum | None:
    """The sum of a decimal type, else ``None``."""
    parts = decimal_parts(data_type)
    return DecimalSum(*parts) if parts else None


def _power(exponent: int) -> str:
    """A power of ten as a decimal literal of no more digits than it needs."""
    return f"1{'0' * exponent}BD" if exponent >= 0 else f"0.{'0' * (-exponent - 1)}1BD"


def _shifted(whole: str, digits: int, data_type: str) -> str:
    """A whole number shifted right by decimal digits, exactly."""
    return f"CAST(concat(CAST(CAST({whole} AS decimal({MOST_DIGITS},0)) AS STRING), 'E-{digits}') AS {data_type})"
