"""Aggregate calls written as expressions over simpler ones, which have value state or extreme state.

=======================================  ==============================================================================
call                                     over
=======================================  ==============================================================================
``var_*``, ``stddev_*`` of exact x       count(x), sum(u), sum(u·u), u being x as a whole number
``covar_*``, ``corr`` of exact x, y      the same of both, where neither is NULL, and sum(u·v)
``avg`` of floating-point x              count(x), sum(x)
``max_by(x, y)``, ``min_by(x, y)``       max, min of struct(y, x) where y is not NULL
=======================================  ==============================================================================

Sums of whole numbers are exact whatever is added and taken away again, so nothing drifts; only the last step is in floating
point. With n rows of sum S, and q the whole number next to the mean,

    Σ(u − S/n)² = (Σu² − q·S − r·q) − r²/n      where r = S − q·n, so that |r| ≤ n/2

has an exact first part and a second one that is at most half of it: no digits cancel, however far the values lie from zero.

Of rows that tie, ``max_by`` takes the one with the largest x (``min_by`` the smallest): Spark leaves it open, but what is
retracted has to be what was added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from relstate_dagster.jobs.plan.decimal_sums import decimal_parts
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.row_encoding.layout import check_key_type
from relstate_dagster.state_lib.slots import check_nested
from relstate_dagster.state_lib.sql_type import sql_type

_DIGITS: Final = {8: 3, 16: 5, 32: 10}
#: A sum has ten digits more than what is summed, and a decimal no more than 38 in all.
_MOST_DIGITS: Final = 28


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: SQL text over the input, and its DDL type."""

    sql: str
    data_type: str


@dataclass(frozen=True, slots=True)
class Part:
    """A simpler call over one computed column, with the type of its result."""

    function: str
    argument: Argument
    result_type: str


@dataclass(frozen=True, slots=True)
class Decomposed:
    """Simpler calls, and SQL over their results: of means, and of the whole.

    Parameters
    ----------
    means : by the columns of the parts, each with its type.
    result : by the columns of the parts and those of the means.
    """

    parts: tuple[Part, ...]
    means: Callable[[Sequence[str]], list[Argument]]
    result: Callable[[Sequence[str], Sequence[str]], str]


def decomposed(function: str, arguments: Sequence[Argument]) -> Decomposed | None:
    """A call as simpler ones; ``None`` if it has none.

    Parameters
    ----------
    function : the name of Catalyst's class: ``VarianceSamp``, ``Corr``, ``MaxBy``, …
    arguments : before Catalyst casts them to DOUBLE, NULL where a FILTER leaves the row out.
    """
    if function in _MOMENTS and len(arguments) == 1:
        return _moment(_MOMENTS[function], arguments[0])
    if function in _PAIR_MOMENTS and len(arguments) == 2:
        return _pair_moment(_PAIR_MOMENTS[function], *arguments)
    if function == _MEAN:
        return _float_mean(*arguments)
    if function in _EXTREMES_BY:
        return _extreme_by(_EXTREMES_BY[function], *arguments)
    return None


# -- moments ----------------------------------------------------------------------------------------------------------

_MOMENTS: Final[dict[str, Callable[[str, str], str]]] = {
    "VariancePop": lambda m2, n: f"{m2} / nullif({n}, 0)",
    "VarianceSamp": lambda m2, n: f"{m2} / nullif({n} - 1, 0)",
    "StddevPop": lambda m2, n: f"sqrt({m2} / nullif({n}, 0))",
    "StddevSamp": lambda m2, n: f"sqrt({m2} / nullif({n} - 1, 0))",
}
# Corr divides by zero where one side is constant: an error or NULL, as the session has it for every division.
_PAIR_MOMENTS: Final[dict[str, Callable[[str, str, str, str], str]]] = {
    "CovPopulation": lambda c, _x, _y, n: f"{c} / nullif({n}, 0)",
    "CovSample": lambda c, _x, _y, n: f"{c} / nullif({n} - 1, 0)",
    "Corr": lambda c, x, y, n: f"CASE WHEN {n} > 1 THEN {c} / sqrt({x} * {y}) END",
}
_MEAN: Final = "Average"
_EXTREMES_BY: Final = {"MaxBy": "max", "MinBy": "min"}

#: Names of Catalyst's classes of the calls that may be written by simpler ones.
DECOMPOSABLE: Final = frozenset({*_MOMENTS, *_PAIR_MOMENTS, _MEAN, *_EXTREMES_BY})


def _digits(data_type: str) -> tuple[int, int] | None:
    """All digits of an exact type, and those after the point.

    ``None`` for types whose squares are too long or not exact.
    """
    parsed = sql_type(data_type)
    digits = parsed.decimal or ((_DIGITS[parsed.bits], 0) if parsed.bits in _DIGITS else None)
    return digits if digits and 2 * digits[0] <= _MOST_DIGITS else None


def _whole(argument: Argument, digits: tuple[int, int]) -> Argument:
    precision, scale = digits
    shifted = f"{argument.sql} * CAST(1{'0' * scale} AS decimal({scale + 1},0))" if scale else argument.sql
    return Argument(f"CAST({shifted} AS decimal({precision},0))", f"decimal({precision},0)")


def _product(left: Argument, right: Argument) -> Argument:
    precision = sum(parts[0] for a in (left, right) if (parts := decimal_parts(a.data_type)))
    return Argument(f"CAST({left.sql} * {right.sql} AS decimal({precision},0))", f"decimal({precision},0)")


def _sum(argument: Argument) -> Part:
    precision, _ = decimal_parts(argument.data_type) or (0, 0)
    return Part("sum", argument, f"decimal({precision + 10},0)")


def _moment(formula: Callable[[str, str], str], argument: Argument) -> Decomposed | None:
    digits = _digits(argument.data_type)
    if digits is None:
        return None
    u = _whole(argument, digits)
    # Counted as it is, so that a count or another moment of the same column is the same call.
    parts = (Part("count", argument, "bigint"), _sum(u), _sum(_product(u, u)))

    def result(columns: Sequence[str], means: Sequence[str]) -> str:
        n, total, squares = columns
        of_u = _Sum(total, means[0], digits[1])
        return f"({formula(_central(n, of_u, of_u, squares), n)})"

    return Decomposed(parts, lambda columns: [_mean(columns[0], columns[1], digits)], result)


def _pair_moment(formula: Callable[[str, str, str, str], str], x: Argument, y: Argument) -> Decomposed | None:
    x_digits, y_digits = _digits(x.data_type), _digits(y.data_type)
    if x_digits is None or y_digits is None:
        return None
    u = _whole(Argument(f"CASE WHEN {y.sql} IS NOT NULL THEN {x.sql} END", x.data_type), x_digits)
    v = _whole(Argument(f"CASE WHEN {x.sql} IS NOT NULL THEN {y.sql} END", y.data_type), y_digits)
    sums = [_sum(a) for a in (u, v, _product(u, u), _product(v, v), _product(u, v))]
    parts = (Part("count", u, "bigint"), *sums)

    def means(columns: Sequence[str]) -> list[Argument]:
        n, of_u, of_v, *_ = columns
        return [_mean(n, of_u, x_digits), _mean(n, of_v, y_digits)]

    def result(columns: Sequence[str], means: Sequence[str]) -> str:
        n, total_u, total_v, uu, vv, uv = columns
        of_u, of_v = _Sum(total_u, means[0], x_digits[1]), _Sum(total_v, means[1], y_digits[1])
        moments = _central(n, of_u, of_v, uv), _central(n, of_u, of_u, uu), _central(n, of_v, of_v, vv)
        return f"({formula(*moments, n)})"

    return Decomposed(parts, means, result)


@dataclass(frozen=True, slots=True)
class _Sum:
    """Columns of a sum of whole numbers, and of its shift.

    The shift is the whole number next to their mean.
    """

    total: str
    mean: str
    scale: int


def _mean(n: str, total: str, digits: tuple[int, int]) -> Argument:
    data_type = f"decimal({digits[0] + 1},0)"
    return Argument(f"CAST(round(CAST({total} AS DOUBLE) / nullif({n}, 0)) AS {data_type})", data_type)


def _central(n: str, u: _Sum, v: _Sum, products: str) -> str:
    """Central co-moment as DOUBLE, from n, Σu, Σv and Σu·v.

    Σ(u − mean of u)·(v − mean of v); NULL over no rows.
    """
    r_u, r_v = (f"({s.total} - {s.mean} * {n})" for s in (u, v))
    exact = f"({products} - {u.mean} * {v.total} - {r_u} * {v.mean})"
    rest = f"CAST({r_u} AS DOUBLE) * CAST({r_v} AS DOUBLE) / nullif({n}, 0)"
    unit = f" / 1e{u.scale + v.scale}D" if u.scale + v.scale else ""
    return f"((CAST({exact} AS DOUBLE) - {rest}){unit})"


def _float_mean(argument: Argument) -> Decomposed | None:
    if sql_type(argument.data_type).name not in ("double", "float"):
        return None
    parts = Part("count", argument, "bigint"), Part("sum", argument, "double")
    return Decomposed(parts, lambda _columns: [], lambda columns, _means: f"({columns[1]} / nullif({columns[0]}, 0))")


# -- extremes ---------------------------------------------------------------------------------------------------------


def _extreme_by(function: str, value: Argument, order: Argument) -> Decomposed | None:
    data_type = f"struct<`by`: {order.data_type}, `value`: {value.data_type}>"
    try:
        check_key_type(parse_type(data_type))
        check_nested(parse_type(data_type), function)
    except PlanError:
        return None
    pair = f"CASE WHEN {order.sql} IS NOT NULL THEN named_struct('by', {order.sql}, 'value', {value.sql}) END"
    part = Part(function, Argument(pair, data_type), data_type)
    return Decomposed((part,), lambda _columns: [], lambda columns, _means: f"{columns[0]}.`value`")
