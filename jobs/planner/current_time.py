"""A query as of an instant: Spark's current time functions replaced by literals of it.

Spark's own rule (``ComputeCurrentTime``) does the same with the clock of the machine and takes no other, so the analysed
plan is walked here. Only nodes that Spark has marked as reading the current time are looked into.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.declare.query_function import Query
from relstate_dagster.jobs.engine.instants import unix_microseconds
from relstate_dagster.jobs.engine.spark_connect import is_remote
from relstate_dagster.jobs.planner.catalyst import frame_of_plan
from relstate_dagster.jobs.planner.query_frames import frame_of
from relstate_dagster.jobs.planner.trees import Trees, class_name
from relstate_dagster.state_lib.errors import PlanError

_TYPES = "org.apache.spark.sql.types."
_DAY_MICROSECONDS = 24 * 60 * 60 * 1_000_000
_SOME_INSTANT = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


def query_at(session: SparkSession, query: Query, instant: datetime) -> DataFrame:
    """Rows of a query at an instant, which all current time functions return.

    Raises
    ------
    PlanError : the session is a client of Spark Connect, which does not show its plans.
    """
    if is_remote(session):
        raise PlanError("a query that depends on the time needs a classic Spark session, not Spark Connect")
    frame = frame_of(session, query)
    analysed = frame._jdf.queryExecution().analyzed()
    pinned = _AtInstant(session, instant).plan(analysed)
    if pinned is analysed:
        return frame
    return frame_of_plan(session, pinned)


def reads_current_time(session: SparkSession, analysed: Any) -> bool:
    """Whether an analysed plan gives other rows at another time."""
    return _AtInstant(session, _SOME_INSTANT).plan(analysed) is not analysed


def expression_at(session: SparkSession, expression: Any, instant: datetime) -> Any:
    """An analysed expression whose current time functions are literals of an instant."""
    return _AtInstant(session, instant).expression(expression)


class _AtInstant:
    """Rewrites trees.

    What holds no current time function is returned as the very object.
    """

    def __init__(self, session: SparkSession, instant: datetime) -> None:
        self._trees = Trees(session)
        self._jvm = self._trees.jvm
        self._microseconds = unix_microseconds(instant)
        self._marked = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()

    def plan(self, plan: Any) -> Any:
        if not plan.containsPattern(self._marked):
            return plan
        return self._trees.with_expressions(self._trees.with_children(plan, self.plan), self.expression)

    def expression(self, expression: Any) -> Any:
        if not expression.containsPattern(self._marked):
            return expression
        value = self._value(expression, class_name(expression))
        if value is not None:
            return value
        return self._trees.with_subquery(self._trees.with_children(expression, self.expression), self.plan)

    def _value(self, expression: Any, kind: str) -> Any | None:
        """Literal of a current time function at the instant.

        As Spark's own rule computes it.
        """
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
