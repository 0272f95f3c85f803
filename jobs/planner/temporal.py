"""Comparisons of columns with the current time, which operators can follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relstate_dagster.jobs.planner.between import written_out
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.expression_facts import conjuncts, reads_time, references
from relstate_dagster.jobs.planner.trees import class_name, items

#: Class of a comparison → how it is written with its left side first, and with its right side first.
_COMPARISONS = {
    "EqualTo": ("=", "="),
    "EqualNullSafe": ("<=>", "<=>"),
    "LessThan": ("<", ">"),
    "LessThanOrEqual": ("<=", ">="),
    "GreaterThan": (">", "<"),
    "GreaterThanOrEqual": (">=", "<="),
}
#: Days that can be added to any date between the years 1 and 9999: Spark keeps a DATE as 32 bits, and more days may overflow.
_MOST_DAYS = 100_000_000


@dataclass(frozen=True, slots=True)
class TimeComparison:
    """``value comparison time``: an expression free of time, and one of time alone."""

    value: Any
    comparison: str
    time: Any


def split_temporal(catalyst: Catalyst, parts: list[Any]) -> tuple[list[Any], list[TimeComparison]]:
    """AND-ed conditions split: temporal filters, and others, which may still read the time."""
    others: list[Any] = []
    found: list[TimeComparison] = []
    for part in parts:
        if not has_time(catalyst, part):
            others.append(part)
            continue
        opened = _opened(catalyst, part)
        comparisons = {n: _comparison(catalyst, p) for n, p in enumerate(opened) if reads_time(p)}
        if any(c is None for c in comparisons.values()):
            others.append(part)
            continue
        found += [c for c in comparisons.values() if c is not None]
        others += [p for n, p in enumerate(opened) if n not in comparisons]
    return others, found


def has_time(catalyst: Catalyst, expression: Any) -> bool:
    """Whether an expression reads the time and follows it; its subqueries are not searched."""
    return not catalyst.is_of_a_day and catalyst.may_read_time(expression) and reads_time(expression)


def with_flags(catalyst: Catalyst, expression: Any, flag: Callable[[TimeComparison, Any], Any]) -> Any:
    """An expression with replacements for its largest comparisons with a time.

    Parameters
    ----------
    flag : given a comparison and the expression that it is, what stands for it.
    """
    if not has_time(catalyst, expression):
        return expression
    found = _comparison(catalyst, expression)
    if found is not None:
        return flag(found, expression)
    kind = class_name(expression)
    if kind == "Between":
        return with_flags(catalyst, expression.children().apply(0), flag)
    if kind == "With":
        return with_flags(catalyst, written_out(catalyst.trees, expression), flag)
    return catalyst.trees.with_children(expression, lambda child: with_flags(catalyst, child, flag))


def _comparison(catalyst: Catalyst, condition: Any) -> TimeComparison | None:
    written = _COMPARISONS.get(class_name(condition))
    if written is None:
        return None
    left, right = condition.left(), condition.right()
    if _is_time(catalyst, right) and not reads_time(left):
        return TimeComparison(left, written[0], right)
    if _is_time(catalyst, left) and not reads_time(right):
        return TimeComparison(right, written[1], left)
    return _of_difference(catalyst, left, right, written) or _of_difference(catalyst, right, left, written[::-1])


def _of_difference(catalyst: Catalyst, difference: Any, days: Any, written: tuple[str, str]) -> TimeComparison | None:
    """Comparisons of ``datediff`` as comparisons with a time.

    ``datediff(time, value) < 7`` is ``value + 7 > time``.

    Only so for whole days: what Spark takes for the difference of two timestamps depends on clocks being put forward and back.
    """
    if class_name(difference) != "DateDiff" or reads_time(days) or not days.foldable():
        return None
    number = catalyst.folded(days)
    if class_name(number) != "Literal" or number.value() is None or abs(int(number.value())) > _MOST_DAYS:
        return None
    end, start = items(difference.children())
    expressions = catalyst.jvm.org.apache.spark.sql.catalyst.expressions
    literal_class = catalyst.companion("org.apache.spark.sql.catalyst.expressions.Literal")
    if _is_time(catalyst, end) and not reads_time(start):
        return TimeComparison(expressions.DateAdd(start, literal_class.apply(int(number.value()))), written[1], end)
    if _is_time(catalyst, start) and not reads_time(end):
        return TimeComparison(expressions.DateAdd(end, literal_class.apply(-int(number.value()))), written[0], start)
    return None


def _is_time(catalyst: Catalyst, expression: Any) -> bool:
    return (
        reads_time(expression)
        and bool(expression.deterministic())
        and not references(expression)
        and not catalyst.has_subquery(expression)
    )


def _opened(catalyst: Catalyst, condition: Any) -> list[Any]:
    """BETWEEN as AND-ed conditions; other conditions unchanged."""
    kind = class_name(condition)
    if kind == "Between":
        return _opened(catalyst, condition.children().apply(0))
    if kind == "With":
        return _opened(catalyst, written_out(catalyst.trees, condition))
    parts = conjuncts(condition)
    return parts if len(parts) == 1 else [found for part in parts for found in _opened(catalyst, part)]
