"""The first rows of a correlated subquery, sorted by a column that it does not show."""

from __future__ import annotations

from typing import Any, Final

from relstate_dagster.jobs.planner.trees import Trees, class_name

_LIMITS: Final = frozenset({"GlobalLimit", "LocalLimit", "Offset"})


def limits_below_projections(trees: Trees, plan: Any) -> Any:
    """Take the first rows of a sort before its columns are dropped, and not after: the rows are the same.

    Spark makes a correlated LIMIT a row number, in the order of the sort that it finds right below. Where a projection is in
    between, as it is if a column is sorted by and not selected, the row number has no order, and only chance keeps the one that
    the rows had (Spark 4.2, ``DecorrelateInnerQuery``).
    """
    limits, below = [], plan
    while class_name(below) in _LIMITS:
        limits.append(below)
        below = below.child()
    rewritten = trees.with_children(below, lambda child: limits_below_projections(trees, child))
    if limits and class_name(rewritten) == "Project" and class_name(rewritten.child()) == "Sort":
        return rewritten.withNewChildren(trees.seq([_above(trees, limits, rewritten.child())]))
    return plan if rewritten is below else _above(trees, limits, rewritten)


def _above(trees: Trees, limits: list[Any], rows: Any) -> Any:
    """Put limits above other rows. They stay together: Spark takes a global and a local one for what LIMIT means."""
    for limit in reversed(limits):
        rows = limit.withNewChildren(trees.seq([rows]))
    return rows
