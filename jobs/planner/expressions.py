"""JVM expressions as Spark SQL text over a plan node's column names.

Some expressions do not write their own text rightly, and are written here:

* A constant expression becomes its value: the analyser puts expressions into it that no SQL text stands for.
* An expression that Spark replaces at run time (``BETWEEN``, ``nvl``, ``date_part``, …) prints the arguments it was
  analysed with, whatever its columns are called by then. Its text is made from its renamed arguments.
* A lambda function, whose variables get a name.
* A scalar subquery is the column that its value was joined in as.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from jobs.planner.catalyst import Catalyst, type_ddl
from jobs.planner.nodes import NOW, quoted
from jobs.planner.trees import class_name, items
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
_WHOLE_NUMBERS = frozenset({"tinyint", "smallint", "bigint"})
_LITERAL = "org.apache.spark.sql.catalyst.expressions.Literal"


#: Current time functions as SQL text over the instant of the epoch.
_AT_INSTANT = {
    "CurrentTimestamp": NOW,
    "Now": NOW,
    "CurrentDate": f"CAST({NOW} AS DATE)",
    "LocalTimestamp": f"CAST({NOW} AS TIMESTAMP_NTZ)",
}


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
    """Writes expressions as SQL text.

    Parameters
    ----------
    with_time : whether current time functions are written, with :data:`jobs.planner.nodes.NOW` for the instant; they are
        refused otherwise.
    """

    def __init__(self, catalyst: Catalyst, *, with_time: bool = False) -> None:
        self._catalyst = catalyst
        self._with_time = with_time

    def sql(self, expression: Any, names: Mapping[int, str]) -> str:
        """SQL text of an expression; ``names`` maps expression ids to the child's column names."""
        if class_name(expression) == "AttributeReference":
            return quoted(_name(expression, names))
        texts: dict[str, str] = {}
        text = str(self._rename(expression, names, texts).sql())
        for column, written in texts.items():
            text = text.replace(column, written)
        return text

    def _rename(  # noqa: C901, PLR0911, PLR0912 - one return a kind of expression
        self, expression: Any, names: Mapping[int, str], texts: dict[str, str]
    ) -> Any:
        """The expression over the child's columns; ``texts`` gets what stands for the columns that stand for texts."""
        kind = class_name(expression)
        if self._with_time and kind in _AT_INSTANT:
            return self._standing_for(_AT_INSTANT[kind], texts)
        check_deterministic(expression, kind)
        if kind == "AttributeReference":
            return expression.withName(_name(expression, names)).withQualifier(self._catalyst.trees.seq([]))
        if kind == "ScalarSubquery":
            attribute = names.get(expression_id(expression))
            if attribute is None:
                raise NotIncremental("scalar-subquery", str(expression), "this scalar subquery was not turned into a join")
            return self._attribute(attribute)
        if kind == "NamedLambdaVariable":
            return self._attribute(_variable(expression))
        if kind == "AggregateExpression" and is_python_aggregate(expression):
            return self._rename(expression.aggregateFunction(), names, texts)
        children = list(items(expression.children()))
        called = user_function(expression, kind)
        if called is not None:
            return self._standing_for(f"{quoted(called)}({', '.join(self.sql(c, names) for c in children)})", texts)
        if not children:
            return expression
        if kind == "LambdaFunction":
            variables = [_variable(v) for v in items(expression.arguments())]
            left = variables[0] if len(variables) == 1 else f"({', '.join(variables)})"
            return self._standing_for(f"{left} -> {self.sql(expression.function(), names)}", texts)
        folded = self._folded(expression, texts)
        if folded is not None:
            return folded
        if kind in _REPLACED:
            return self._rename(expression.replacement(), names, texts)
        if self._keeps_arguments(expression):
            replacement = children[0]
            current = _current_names(expression, replacement, names)
            if current is None:
                return self._rename(replacement, names, texts)
            return self._standing_for(self._with_arguments(expression, kind, current), texts)
        if kind == "With":
            # Common parts are written as often as they are used.
            shared = {str(d.id()): self._rename(d.child(), names, texts) for d in items(expression.defs())}
            return self._inlined(expression.child(), shared, names, texts)
        if kind == "SpecifiedWindowFrame":
            return expression  # its bounds are constants, and it tells PRECEDING by their sign's own node
        return expression.withNewChildren(self._catalyst.trees.seq([self._rename(child, names, texts) for child in children]))

    def _inlined(self, expression: Any, shared: Mapping[str, Any], names: Mapping[int, str], texts: dict[str, str]) -> Any:
        if class_name(expression) == "CommonExpressionRef":
            return shared[str(expression.id())]
        if not _refers(expression):
            return self._rename(expression, names, texts)
        return self._catalyst.trees.with_children(expression, lambda child: self._inlined(child, shared, names, texts))

    def _folded(self, expression: Any, texts: dict[str, str]) -> Any | None:
        """The literal that a constant expression is; ``None`` for any other, and where it has no value but an error."""
        if not expression.foldable() or not expression.resolved():
            return None
        if self._with_time and reads_time(expression):
            return None
        _check_below(expression)
        try:
            return self._standing_for(self.literal(expression.eval(None), expression.dataType()), texts)
        except (PySparkException, Py4JJavaError):
            return None

    def literal(self, value: Any, data_type: Any) -> str:
        """A value of Catalyst's as SQL text that Spark reads back as that type."""
        written = type_ddl(data_type)
        if isinstance(value, int) and not isinstance(value, bool) and written in _WHOLE_NUMBERS:
            return f"CAST({value} AS {written})"  # on its way here it has lost which whole number it is
        text = str(self._catalyst.companion(_LITERAL).create(value, data_type).sql())
        if written.startswith("decimal") and written != _written_decimal(text):
            return f"CAST({text} AS {written})"
        return text

    def _keeps_arguments(self, expression: Any) -> bool:
        return self._catalyst.trees.is_a(expression, _KEEPS_ARGUMENTS)

    def _with_arguments(self, expression: Any, kind: str, names: Mapping[int, str]) -> str:
        arguments = [self.sql(argument, names) for argument in items(expression.parameters())]
        if kind == "Between":
            value, lower, upper = arguments
            return f"({value} BETWEEN {lower} AND {upper})"
        if kind == "DatetimeSub":
            return f"({' - '.join(arguments)})"
        return f"{expression.prettyName()}({', '.join(arguments)})"

    def _standing_for(self, text: str, texts: dict[str, str]) -> Any:
        """A column in whose place the text is put once the whole expression is written."""
        name = f"__relstate_text_{len(texts)}__"
        texts[name] = text
        return self._attribute(name)

    def _attribute(self, name: str) -> Any:
        attribute = self._catalyst.jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
        return attribute.quoted(name)


def is_python_aggregate(call: Any) -> bool:
    """Whether an aggregate call is of a function that the user wrote in Python."""
    return class_name(call.aggregateFunction()) == "PythonUDAF"


def user_function(expression: Any, kind: str) -> str | None:
    """The name that the user registered a function under; ``None`` for an expression of Spark's.

    Spark writes its arguments with the ids that its columns have in one plan, which mean nothing in another.
    """
    if kind in ("PythonUDF", "PythonUDAF"):
        return str(expression.name())
    if kind == "ScalaUDF" and expression.udfName().isDefined():
        return str(expression.udfName().get())
    if kind == "PythonUDTF":
        raise NotIncremental(
            "table-function", str(expression.name()), "a table function in Python has no incremental form here"
        )
    return None


def check_deterministic(expression: Any, kind: str) -> None:
    """Refuse an expression whose value another run would not give again."""
    if kind in _TIME_DEPENDENT:
        raise NotIncremental(
            "time-dependent",
            str(expression),
            "its value changes with the time of the run, not with the inputs; it is followed only where a condition of "
            "WHERE, ON or HAVING has it alone on one side of a comparison, as in ts > now() - INTERVAL 1 DAY",
        )
    if expression.children().size() == 0 and not expression.deterministic():
        raise NotIncremental(
            "non-deterministic", str(expression), "a non-deterministic function gives other rows when read again"
        )
    if not expression.deterministic() and all(c.deterministic() for c in items(expression.children())):
        raise NotIncremental(
            "non-deterministic", str(expression), "a non-deterministic function gives other rows when read again"
        )


def _written_decimal(text: str) -> str:
    """The type that Spark gives a decimal literal: as many digits as are written."""
    whole, _, fraction = text.removesuffix("BD").lstrip("-").partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    return f"decimal({max(digits, len(fraction), 1)},{len(fraction)})"


def _current_names(expression: Any, replacement: Any, names: Mapping[int, str]) -> Mapping[int, str] | None:
    """The columns that the arguments of an expression stand for; ``None`` where that cannot be told.

    Rules give columns new ids, as on one side of a self join, and do so in the replacement only: the arguments keep the
    old ids, which may be those of the other side. An argument's column that the replacement does not read is the one
    of the same name that it reads and the other arguments do not.
    """
    read = {expression_id(a): str(a.name()) for a in _attributes(replacement)}
    kept = {expression_id(a): str(a.name()) for p in items(expression.parameters()) for a in _attributes(p)}
    stale = {number: name for number, name in kept.items() if number not in read}
    current = {number: names[number] for number in kept if number in read and number in names}
    for number, name in stale.items():
        same = [n for n, other in read.items() if other == name and n not in kept and n in names]
        if len(same) != 1:
            return None
        current[number] = names[same[0]]
    subqueries = {n: column for n, column in names.items() if n not in kept}
    return {**subqueries, **current}


def _variable(variable: Any) -> str:
    """A lambda variable's name: inner ones hide outer ones, and columns, as they did in the query."""
    return f"_var_{variable.name()}"


def _refers(expression: Any) -> bool:
    return class_name(expression) == "CommonExpressionRef" or any(_refers(child) for child in items(expression.children()))


def _attributes(expression: Any) -> list[Any]:
    if class_name(expression) == "AttributeReference":
        return [expression]
    return [found for child in items(expression.children()) for found in _attributes(child)]


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


def reads_time(expression: Any) -> bool:
    """Whether an expression has a current time function; subqueries in it are not looked into."""
    kind = class_name(expression)
    return kind in _TIME_DEPENDENT or any(reads_time(child) for child in items(expression.children()))


def references(expression: Any) -> set[int]:
    """Ids of the columns that an expression reads."""
    if class_name(expression) == "AttributeReference":
        return {expression_id(expression)}
    return {n for child in items(expression.children()) for n in references(child)}


def scalar_subqueries(catalyst: Catalyst, expression: Any) -> list[Any]:
    """The scalar subqueries within an expression."""
    if not catalyst.has_subquery(expression):
        return []
    if class_name(expression) == "ScalarSubquery":
        return [expression]
    return [found for child in items(expression.children()) for found in scalar_subqueries(catalyst, child)]
