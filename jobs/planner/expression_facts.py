"""Facts about Catalyst's expressions: ids, columns, parts, and whether they are deterministic."""

from __future__ import annotations

from typing import Any

from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.trees import class_name, items
from relstate_dagster.state_lib.errors import PlanError

_ID = "_relstate_expression_id"
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
#: Functions that Spark takes for deterministic, though they draw a random vector for each value.
_RANDOM = frozenset({"AesEncrypt"})


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
            "its value changes with the time of the run; it has an incremental form only alone on one side of a comparison, as "
            "in ts > now() - INTERVAL 1 DAY. Or take the start of the day for it: 'refresh.time' = 'day'",
        )
    is_random = expression.children().size() == 0 and not expression.deterministic()
    if is_random or kind in _RANDOM:
        raise NotIncremental(
            "non-deterministic", str(expression), "a non-deterministic function gives other rows when read again"
        )
    if not expression.deterministic() and all(c.deterministic() for c in items(expression.children())):
        raise NotIncremental(
            "non-deterministic", str(expression), "a non-deterministic function gives other rows when read again"
        )


def attributes_of(expression: Any) -> list[Any]:
    """The columns that an expression reads, as often as it does."""
    if class_name(expression) == "AttributeReference":
        return [expression]
    return [found for child in items(expression.children()) for found in attributes_of(child)]


def check_below(expression: Any) -> None:
    """As :func:`check_deterministic`, of all that stands below an expression."""
    for child in items(expression.children()):
        check_deterministic(child, class_name(child))
        check_below(child)


def expression_id(named: Any) -> int:
    """The id that Catalyst gives a named expression, unique in a session."""
    kept = vars(named)
    if _ID not in kept:
        kept[_ID] = int(named.exprId().id())
    return int(kept[_ID])


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
    return {expression_id(attribute) for attribute in attributes_of(expression)}


def scalar_subqueries(catalyst: Catalyst, expression: Any) -> list[Any]:
    """The scalar subqueries within an expression."""
    if not catalyst.has_subquery(expression):
        return []
    if class_name(expression) == "ScalarSubquery":
        return [expression]
    return [found for child in items(expression.children()) for found in scalar_subqueries(catalyst, child)]
