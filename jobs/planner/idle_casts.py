"""Columns of plain views as the columns that they are.

Spark casts each column of a view to the type that the view was made with, which is nearly always the type that the column has.
A key seen through such a cast is computed, and so no key. Spark's own ``SimplifyCasts`` does more: it rewrites casts within
expressions as well, whose texts then say something else when they are read again.
"""

from __future__ import annotations

from typing import Any

from relstate_dagster.jobs.planner.trees import Trees, class_name


def without_idle_casts(trees: Trees, plan: Any) -> Any:
    """A plan of Catalyst's whose projections cast no column to the type that it has."""
    if not trees.contains(plan, "CAST"):
        return plan
    plan = trees.with_children(plan, lambda child: without_idle_casts(trees, child))
    if class_name(plan) != "Project":
        return plan
    return trees.with_expressions(plan, lambda expression: _without_cast(trees, expression))


def _without_cast(trees: Trees, expression: Any) -> Any:
    if class_name(expression) != "Alias" or class_name(expression.child()) != "Cast":
        return expression
    cast = expression.child()
    if cast.child().dataType() != cast.dataType():
        return expression
    return trees.with_children(expression, lambda _: cast.child())
