"""A query as of an instant: Spark's current time functions replaced by literals of it.

Spark's own rule (``ComputeCurrentTime``) does the same with the clock of the machine and takes no other, so the analysed
plan is walked here. Only nodes that Spark has marked as reading the current time are looked into.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from jobs.instants import unix_microseconds
from jobs.planner.catalyst import class_name, frame_of, items
from state_lib.errors import PlanError

_CATALYST = "org.apache.spark.sql.catalyst."
_TYPES = "org.apache.spark.sql.types."
_DAY_MICROSECONDS = 24 * 60 * 60 * 1_000_000
_SOME_INSTANT = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


def query_at(session: SparkSession, query: str, instant: datetime) -> DataFrame:
    """The rows that a query gives at an instant: all of its current time functions mean that one.

    Raises
    ------
    PlanError : the session is a client of Spark Connect, which does not show its plans.
    """
    if not hasattr(session, "_jsparkSession"):
        raise PlanError("a query that depends on the time needs a classic Spark session, not Spark Connect")
    frame = session.sql(query)
    analysed = frame._jdf.queryExecution().analyzed()
    pinned = _AtInstant(session, instant).plan(analysed)
    if pinned is analysed:
        return frame
    return frame_of(session, pinned)


def reads_current_time(session: SparkSession, analysed: Any) -> bool:
    """Whether an analysed plan gives other rows at another time."""
    return _AtInstant(session, _SOME_INSTANT).plan(analysed) is not analysed


def _jvm_of(session: SparkSession) -> Any:
    return session._jvm


class _AtInstant:
    """Rewrites trees; what holds no current time function is returned as it is, the very object."""

    def __init__(self, session: SparkSession, instant: datetime) -> None:
        self._jvm = _jvm_of(session)
        self._gateway: Any = session.sparkContext._gateway
        self._microseconds = unix_microseconds(instant)
        self._marked = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()

    def plan(self, plan: Any) -> Any:
        if not plan.containsPattern(self._marked):
            return plan
        plan = self._with_children(plan, self.plan)
        arguments = [plan.productElement(n) for n in range(plan.productArity())]
        replaced = [self._argument(argument) for argument in arguments]
        if all(new is old for new, old in zip(replaced, arguments, strict=True)):
            return plan
        copied = self._gateway.new_array(self._jvm.java.lang.Object, len(replaced))
        for n, argument in enumerate(replaced):
            copied[n] = argument
        return plan.makeCopy(copied)

    def _argument(self, argument: Any) -> Any:
        """An argument of a plan node: an expression, an option or a sequence of them, or anything else."""
        if self._is_a(argument, _CATALYST + "expressions.Expression"):
            return self._expression(argument)
        if self._is_a(argument, "scala.Some"):
            old = argument.get()
            new = self._argument(old)
            return argument if new is old else self._jvm.scala.Option.apply(new)
        if self._is_a(argument, "scala.collection.immutable.Seq"):
            elements = list(items(argument))
            changed = [self._argument(element) for element in elements]
            same = all(new is old for new, old in zip(changed, elements, strict=True))
            return argument if same else self._jvm.PythonUtils.toSeq(changed)
        return argument

    def _expression(self, expression: Any) -> Any:
        if not expression.containsPattern(self._marked):
            return expression
        value = self._value(expression, class_name(expression))
        if value is not None:
            return value
        expression = self._with_children(expression, self._expression)
        if not self._is_a(expression, _CATALYST + "expressions.SubqueryExpression"):
            return expression
        inner = expression.plan()
        pinned = self.plan(inner)
        return expression if pinned is inner else expression.withNewPlan(pinned)

    def _with_children(self, tree: Any, rewrite: Any) -> Any:
        old = list(items(tree.children()))
        new = [rewrite(child) for child in old]
        if all(n is o for n, o in zip(new, old, strict=True)):
            return tree
        return tree.withNewChildren(self._jvm.PythonUtils.toSeq(new))

    def _value(self, expression: Any, kind: str) -> Any | None:
        """The literal that a current time function is at the instant, as Spark's own rule computes it."""
        times = self._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils
        if kind in ("CurrentTimestamp", "Now"):
            return self._literal(self._microseconds, "TimestampType")
        if kind == "CurrentDate":
            return self._literal(times.microsToDays(self._microseconds, expression.zoneId()), "DateType")
        if kind == "LocalTimestamp":
            return self._literal(self._local_microseconds(times, expression.zoneId()), "TimestampNTZType")
        if kind == "CurrentTime":
            nanoseconds = self._local_microseconds(times, expression.zoneId()) % _DAY_MICROSECONDS * 1000
            data_type = expression.dataType()
            value = times.truncateTimeToPrecision(nanoseconds, data_type.precision())
            return self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.create(value, data_type)
        return None

    def _local_microseconds(self, times: Any, zone: Any) -> int:
        """The clock on the wall of a zone at the instant, as a TIMESTAMP_NTZ."""
        return int(times.convertTz(self._microseconds, self._jvm.java.time.ZoneOffset.UTC, zone))

    def _literal(self, value: int, data_type: str) -> Any:
        type_object = getattr(self._jvm, f"{_TYPES}{data_type}$").__getattr__("MODULE$")
        return self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.create(value, type_object)

    def _is_a(self, candidate: Any, class_: str) -> bool:
        return isinstance(candidate, JavaObject) and bool(self._jvm.java.lang.Class.forName(class_).isInstance(candidate))
