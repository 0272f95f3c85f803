"""JVM expressions as Spark SQL text over a plan node's column names.

Three kinds of expressions do not write their own text rightly, and are written here:

* A constant expression becomes its value: the analyser puts expressions into it that no SQL text stands for.
* An expression that Spark replaces at run time (``BETWEEN``, ``nvl``, ``date_part``, …) prints the arguments it was analysed with,
  whatever its columns are called by then. Its text is made from its renamed arguments.
* A scalar subquery is the column that its value was joined in as.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

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
#: Expressions whose text is made of the arguments they were analysed with, and not of their children.
_KEEPS_ARGUMENTS = "org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules"
_LITERAL = "org.apache.spark.sql.catalyst.expressions.Literal"


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
        texts: dict[str, str] = {}
        text = str(self._rename(expression, names, texts).sql())
        for column, written in texts.items():
            text = text.replace(column, written)
        return text

    def _rename(self, expression: Any, names: Mapping[int, str], texts: dict[str, str]) -> Any:
        """The expression over the child's columns; ``texts`` gets what stands for the columns that stand for texts."""
        kind = class_name(expression)
        check_deterministic(expression, kind)
        if kind == "AttributeReference":
            return expression.withName(_name(expression, names)).withQualifier(self._catalyst.seq([]))
        if kind == "ScalarSubquery":
            attribute = names.get(expression_id(expression))
            if attribute is None:
                raise NotIncremental("scalar-subquery", str(expression), "this scalar subquery was not turned into a join")
            return self._attribute(attribute)
        children = list(items(expression.children()))
        if not children:
            return expression
        folded = self._folded(expression)
        if folded is not None:
            return folded
        if kind in _REPLACED:
            return self._rename(expression.replacement(), names, texts)
        if self._keeps_arguments(expression):
            return self._standing_for(self._with_arguments(expression, kind, names), texts)
        if kind == "SpecifiedWindowFrame":
            return expression  # its bounds are constants, and it tells PRECEDING by their sign's own node
        return expression.withNewChildren(self._catalyst.seq([self._rename(child, names, texts) for child in children]))

    def _folded(self, expression: Any) -> Any | None:
        """The literal that a constant expression is; ``None`` for any other, and where it has no value but an error."""
        if not expression.foldable() or not expression.resolved():
            return None
        _check_below(expression)
        literal = self._catalyst.companion(_LITERAL)
        try:
            return literal.create(expression.eval(None), expression.dataType())
        except (PySparkException, Py4JJavaError):
            return None

    def _keeps_arguments(self, expression: Any) -> bool:
        return bool(self._catalyst.jvm.java.lang.Class.forName(_KEEPS_ARGUMENTS).isInstance(expression))

    def _with_arguments(self, expression: Any, kind: str, names: Mapping[int, str]) -> str:
        arguments = [self.sql(argument, names) for argument in items(expression.parameters())]
        if kind == "Between":
            value, lower, upper = arguments
            return f"({value} BETWEEN {lower} AND {upper})"
        return f"{expression.prettyName()}({', '.join(arguments)})"

    def _standing_for(self, text: str, texts: dict[str, str]) -> Any:
        """A column in whose place the text is put once the whole expression is written."""
        name = f"__relstate_text_{len(texts)}__"
        texts[name] = text
        return self._attribute(name)

    def _attribute(self, name: str) -> Any:
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


def _check_below(expression: Any) -> None:
    for child in items(expression.children()):
        check_deterministic(child, class_name(child))
        _check_below(child)


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
