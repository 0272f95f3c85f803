"""JVM expressions as Spark SQL text over a plan node's column names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.planner.catalyst import Catalyst, class_name, items
from jobs.planner.nodes import quoted
from state_lib.errors import PlanError

#: Expressions whose value is fixed within a query but changes from one run to the next.
_TIME_DEPENDENT = frozenset(
    {
        "CurrentDate",
        "CurrentTimestamp",
        "CurrentTimestampLike",
        "Now",
        "LocalTimestamp",
        "CurrentTime",
        "CurrentTimeZone",
    }
)
#: Expressions that name their replacement, because they have no SQL text of their own.
_REPLACED = frozenset({"Extract"})


class NotIncremental(PlanError):
    """A node of the query cannot be maintained incrementally.

    Attributes
    ----------
    code : stable reason code, for programs.
    node : the operator or expression that is to blame.
    reason : one sentence for people.
    """

    def __init__(self, code: str, node: str, reason: str) -> None:
        super().__init__(f"{node}: {reason} [{code}]")
        self.code = code
        self.node = node
        self.reason = reason


class ExpressionWriter:
    """Writes expressions as SQL text."""

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst

    def sql(self, expression: Any, names: Mapping[int, str]) -> str:
        """SQL text of an expression; ``names`` maps expression ids to the child's column names."""
        if class_name(expression) == "AttributeReference":
            return quoted(_name(expression, names))
        return str(self._rename(expression, names).sql())

    def _rename(self, expression: Any, names: Mapping[int, str]) -> Any:
        kind = class_name(expression)
        check_deterministic(expression, kind)
        if kind == "AttributeReference":
            return expression.withName(_name(expression, names)).withQualifier(self._catalyst.seq([]))
        if kind == "ScalarSubquery":
            attribute = names.get(expression_id(expression))
            if attribute is None:
                raise NotIncremental("scalar-subquery", str(expression), "this scalar subquery was not turned into a join")
            return self._attribute(attribute, expression.dataType())
        if kind in _REPLACED:
            return self._rename(expression.replacement(), names)
        children = expression.children()
        if children.size() == 0:
            return expression
        renamed = [self._rename(child, names) for child in items(children)]
        return expression.withNewChildren(self._catalyst.seq(renamed))

    def _attribute(self, name: str, data_type: Any) -> Any:
        attribute = self._catalyst.jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
        return attribute.quoted(name)


def check_deterministic(expression: Any, kind: str) -> None:
    """Refuse an expression whose value another run would not give again."""
    if kind in _TIME_DEPENDENT:
        raise NotIncremental(
            "time-dependent", str(expression), "its value changes with the time of the run, not with the inputs"
        )
    if expression.children().size() == 0 and not expression.deterministic():
        raise NotIncremental(
            "non-deterministic", str(expression), "a non-deterministic function gives other rows when read again"
        )
    if not expression.deterministic() and all(c.deterministic() for c in items(expression.children())):
        raise NotIncremental(
            "non-deterministic", str(expression), "a non-deterministic function gives other rows when read again"
        )


def expression_id(named: Any) -> int:
    """The id that Catalyst gives a named expression, unique in a session."""
    return int(named.exprId().id())


def _name(attribute: Any, names: Mapping[int, str]) -> str:
    name = names.get(expression_id(attribute))
    if name is None:
        raise PlanError(f"column {attribute.toString()} is not among the columns at hand: {sorted(names.values())}")
    return name


def conjuncts(condition: Any) -> list[Any]:
    """The AND-ed parts of a condition, in order."""
    if class_name(condition) == "And":
        return conjuncts(condition.left()) + conjuncts(condition.right())
    return [condition]


def references(expression: Any) -> set[int]:
    """Ids of the columns that an expression reads."""
    if class_name(expression) == "AttributeReference":
        return {expression_id(expression)}
    return {n for child in items(expression.children()) for n in references(child)}


def scalar_subqueries(expression: Any) -> list[Any]:
    """The scalar subqueries within an expression."""
    if class_name(expression) == "ScalarSubquery":
        return [expression]
    return [found for child in items(expression.children()) for found in scalar_subqueries(child)]
