"""Exact sums of floating-point numbers, as SQL text: a superaccumulator (Kulisch).

A finite number is a whole multiple of 2^-186 below 2^155 here, and is added in eleven digits of 31 bits. Each digit has a
BIGINT for its sum, so what is added can be taken away again, in any order, and nothing is rounded until the end. A digit
overflows no earlier than after 2^32 rows; what overflows on the way comes back.

All numbers of type FLOAT are within that range. Those of type DOUBLE are from 4.6e-41 to 4.6e46, on either side of zero.
Smaller ones are if their last bit is not below the unit. Others are an error. NaN and the infinities are counted.

Powers of two scale a DOUBLE without rounding, and so do the steps of :func:`_whole`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from relstate_dagster.state_lib.sql_text import text_literal

#: Bits of a digit, and how many digits there are.
_BITS: Final = 31
_DIGITS: Final = 11
#: Numbers are below this power of two, and the last digit counts units of the other one.
_TOP: Final = 155
_UNITS: Final = tuple(2.0 ** (_TOP - _BITS * (place + 1)) for place in range(_DIGITS))
#: Digits of most real numbers: from 2^-62 on, and below 2^62.
_USUAL: Final = range(3, 7)
#: Whole numbers from here on have no bits after the point.
_WHOLE: Final = 2.0**53
#: A DECIMAL may grow by a digit while it is below this, and then has more bits than a DOUBLE.
_MANY: Final = f"{2**62}BD"
_BASE: Final = f"{2**_BITS}BD"
#: No digit overflows in a sum of fewer rows than this.
_MOST_ROWS: Final = 2 ** (63 - _BITS)

#: The type of what is kept: the sums of the digits, and the numbers of NaN, Infinity and -Infinity.
KEPT_AS: Final = "array<bigint>"
ZEROS: Final = f"array_repeat(0L, {_DIGITS + 3})"
_NAN, _INFINITY, _NEGATIVE_INFINITY = range(_DIGITS, _DIGITS + 3)


def change(value: str, weight: str, label: str) -> str:
    """Sums (SQL) of the digits of a DOUBLE column times a weight.

    Parameters
    ----------
    label : of the call, for the error of a number that is out of range.
    """
    in_range = f"abs({value}) < {_literal(2.0**_TOP)}"
    wholes = [_whole(value, unit) for unit in _UNITS]
    digits = [wholes[0]] + [f"{low} - {high} * {_literal(2.0**_BITS)}" for high, low in pairwise(wholes)]
    sums = [f"IF({in_range}, CAST({digit} AS BIGINT), 0L)" for digit in digits]
    has_more_bits = f"{in_range} AND {wholes[-1]} != {_scaled(value, _UNITS[-1])}"
    problem = (
        f"{label} has met a number that is not 0 and lies closer to 0 than 4.6e-41, or further from it than 4.6e46; leave such "
        "numbers out, or set 'state.float_sums' = 'rows' for the view: "
    )
    raised = f"CAST(raise_error(concat({text_literal(problem)}, CAST({value} AS STRING))) AS BIGINT)"
    is_out = f"{has_more_bits} OR abs({value}) >= {_literal(2.0**_TOP)} AND abs({value}) < double('Infinity')"
    sums.append(f"CASE WHEN isnan({value}) THEN 1L WHEN {is_out} THEN {raised} ELSE 0L END")
    sums += [f"IF({value} = double('{name}'), 1L, 0L)" for name in ("Infinity", "-Infinity")]
    return f"array({', '.join(f'coalesce(sum({digit} * {weight}), 0L)' for digit in sums)})"


def total(kept: str, count: str) -> str:
    """The exact sum (SQL), rounded once to the nearest DOUBLE.

    From ties it is rounded to the even one.

    Parameters
    ----------
    kept : the sums of the digits.
    count : the number of values; it is above 0.
    """
    many = f"raise_error('a sum of floating-point numbers has more than {_MOST_ROWS} values')"
    return (
        f"CASE WHEN {count} >= {_MOST_ROWS}L THEN CAST({many} AS DOUBLE) "
        f"WHEN get({kept}, {_NAN}) > 0 OR get({kept}, {_INFINITY}) > 0 AND get({kept}, {_NEGATIVE_INFINITY}) > 0 "
        f"THEN double('NaN') "
        f"WHEN get({kept}, {_INFINITY}) > 0 THEN double('Infinity') "
        f"WHEN get({kept}, {_NEGATIVE_INFINITY}) > 0 THEN double('-Infinity') "
        f"WHEN {_is_usual(kept)} THEN {_usual_total(kept)} ELSE {_any_total(kept)} END"
    )


def _literal(number: float) -> str:
    return f"{number!r}D"


def _scaled(value: str, unit: float) -> str:
    return f"({value} * {_literal(1 / unit)})"


def _whole(value: str, unit: float) -> str:
    """The whole units of a number, towards zero, as a DOUBLE."""
    scaled = _scaled(value, unit)
    return f"IF(abs({scaled}) < {_literal(_WHOLE)}, CAST(CAST({scaled} AS BIGINT) AS DOUBLE), {scaled})"


def _is_usual(kept: str) -> str:
    """Whether only the usual digits are not 0, and a DECIMAL holds their total."""
    others = (f"get({kept}, {place}) = 0" for place in range(_DIGITS) if place not in _USUAL)
    return " AND ".join([*others, f"abs(get({kept}, {_USUAL[0]})) < {2**_BITS}L"])


def _usual_total(kept: str) -> str:
    first, *others = (f"CAST(get({kept}, {place}) AS DECIMAL(38,0))" for place in _USUAL)
    for digit in others:
        first = f"({first} * {_BASE} + {digit})"
    return f"CAST({first} AS DOUBLE) * {_literal(_UNITS[_USUAL[-1]])}"


def _any_total(kept: str) -> str:
    """As :func:`total` of finite numbers, digit by digit.

    First each digit is brought to what a digit can be, by carries from the last to the first, which has the sign. Then what
    follows the first 62 bits is less than one of the last: they round by whether it is there.
    """
    with_carry = "(digit + a.carry)"
    carry = f"shiftright({with_carry}, {_BITS})"
    low_first = f"slice(reverse({kept}), 4, {_DIGITS})"
    digits = (
        f"aggregate({low_first}, named_struct('carry', 0L, 'digits', CAST(array() AS {KEPT_AS})), (a, digit) -> named_struct("
        f"'carry', {carry}, 'digits', concat(array({with_carry} - shiftleft({carry}, {_BITS})), a.digits)), "
        "a -> concat(array(a.carry), a.digits))"
    )
    longer = f"CAST(a.number * {_BASE} + CAST(digit AS DECIMAL(20,0)) AS DECIMAL(38,0))"
    units = ", ".join(_literal(2.0 ** (_TOP - _BITS * place - 2)) for place in range(_DIGITS + 1))
    return (
        f"aggregate({digits}, named_struct('number', CAST(0 AS DECIMAL(38,0)), 'digits', 0, 'rest', 0), (a, digit) -> "
        f"IF(abs(a.number) < {_MANY}, named_struct('number', {longer}, 'digits', a.digits + 1, 'rest', 0), "
        "named_struct('number', a.number, 'digits', a.digits, 'rest', IF(digit = 0, a.rest, 1))), "
        f"a -> CAST(a.number * 4BD + CAST(a.rest AS DECIMAL(1,0)) AS DOUBLE) * element_at(array({units}), a.digits))"
    )
