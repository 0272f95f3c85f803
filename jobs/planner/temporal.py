"""Finds what a temporal filter can follow: comparisons of an expression over columns with one of the current time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relstate_dagster.jobs.planner.between import written_out
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.expressions import conjuncts, reads_time, references
from relstate_dagster.jobs.planner.trees import class_name

#: Class of a comparison → how it is written with its left side first, and with its right side first.
_COMPARISONS = {
    "EqualTo": ("=", "="),
    "EqualNullSafe": ("<=>", "<=>"),
    "LessThan": ("<", ">"),
    "LessThanOrEqual": ("<=", ">="),
    "GreaterThan": (">", "<"),
    "GreaterThanOrEqual": (">=", "<="),
}


@dataclass(frozen=True, slots=True)
class TimeComparison:
    """``value comparison time``: a JVM expression that is free of time, and one of nothing but time."""

    value: Any
    comparison: str
    time: Any


def split_temporal(catalyst: Catalyst, parts: list[Any]) -> tuple[list[Any], list[TimeComparison]]:
    """AND-ed conditions apart: those that a temporal filter follows, and all others, which may still read the time."""
    others: list[Any] = []
    found: list[TimeComparison] = []
    for part in parts:
        if not catalyst.may_read_time(part) or not reads_time(part):
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


def _comparison(catalyst: Catalyst, condition: Any) -> TimeComparison | None:
    written = _COMPARISONS.get(class_name(condition))
    if written is None:
        return None
    left, right = condition.left(), condition.right()
    if _is_time(catalyst, right) and not reads_time(left):
        return TimeComparison(left, written[0], right)
    if _is_time(catalyst, left) and not reads_time(right):
        return TimeComparison(right, written[1], left)
    return None


def _is_time(catalyst: Catalyst, expression: Any) -> bool:
    return (
        reads_time(expression)
        and bool(expression.deterministic())
        and not references(expression)
        and not catalyst.has_subquery(expression)
    )


def _opened(catalyst: Catalyst, condition: Any) -> list[Any]:
    """The AND-ed conditions that BETWEEN stands for; any other condition as it is."""
    kind = class_name(condition)
    if kind == "Between":
        return _opened(catalyst, condition.children().apply(0))
    if kind == "With":
        return _opened(catalyst, written_out(catalyst.trees, condition))
    parts = conjuncts(condition)
    return parts if len(parts) == 1 else [found for part in parts for found in _opened(catalyst, part)]
