"""Ties of a LIMIT: rows that its ORDER BY does not tell apart."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from relstate_dagster.jobs.engine.names import JavaNames
from relstate_dagster.jobs.engine.spark_connect import is_remote
from relstate_dagster.jobs.planner.catalyst import frame_of_plan, inline_cte
from relstate_dagster.jobs.planner.expression_facts import expression_id
from relstate_dagster.jobs.planner.trees import class_name, items

_LIMITS = {"GlobalLimit", "LocalLimit", "Offset"}


def before_limit(frame: DataFrame) -> tuple[DataFrame, list[int]] | None:
    """The rows before a LIMIT, and positions of their sort columns.

    Returns
    -------
    The rows without LIMIT and OFFSET; ``None`` where the query does not end in a limit, or sorts by what it does not show.
    """
    session = frame.sparkSession
    if is_remote(session):
        return None
    plan: Any = inline_cte(JavaNames(session._jvm)).apply(frame._jdf.queryExecution().analyzed())
    if class_name(plan) not in _LIMITS:
        return None
    while class_name(plan) in _LIMITS:
        plan = plan.child()
    shown = [expression_id(column) for column in items(plan.output())]
    keys = []
    if class_name(plan) == "Sort":
        for order in items(plan.order()):
            if class_name(order.child()) != "AttributeReference" or expression_id(order.child()) not in shown:
                return None
            keys.append(shown.index(expression_id(order.child())))
        plan = plan.child()
    return frame_of_plan(session, plan), keys
