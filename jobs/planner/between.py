"""BETWEEN in conditions as two comparisons.

The optimizer's rules split no other form.

A condition that has one whole is not moved into a join, and what it says of one side alone is not found in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relstate_dagster.jobs.planner.trees import Trees, class_name, items

#: What Spark marks expressions with that stand for others, BETWEEN among them.
_STANDS_FOR = "RUNTIME_REPLACEABLE"


def with_bounds(trees: Trees, plan: Any) -> Any:
    """A Catalyst plan whose filters and joins have two comparisons for each BETWEEN."""
    if not trees.contains(plan, _STANDS_FOR):
        return plan
    plan = trees.with_children(plan, lambda child: with_bounds(trees, child))
    if class_name(plan) not in ("Filter", "Join"):
        return plan
    return trees.with_expressions(plan, lambda expression: _compared(trees, expression))


def _compared(trees: Trees, expression: Any) -> Any:
    if not trees.contains(expression, _STANDS_FOR):
        return expression
    # Anything else than a column would be computed twice.
    if class_name(expression) == "Between" and class_name(expression.parameters().apply(0)) == "AttributeReference":
        return written_out(trees, expression.replacement())
    return trees.with_children(expression, lambda child: _compared(trees, child))


def written_out(trees: Trees, expression: Any) -> Any:
    """An expression without common parts that Spark has set apart."""
    if class_name(expression) != "With":
        return expression
    return _inlined(trees, expression.child(), {str(d.id()): d.child() for d in items(expression.defs())})


def _inlined(trees: Trees, expression: Any, shared: Mapping[str, Any]) -> Any:
    if class_name(expression) == "CommonExpressionRef":
        return shared[str(expression.id())]
    return trees.with_children(expression, lambda child: _inlined(trees, child, shared))
