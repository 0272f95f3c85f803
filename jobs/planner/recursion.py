"""``WITH RECURSIVE`` without sources: a series, computed once while planning."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from relstate_dagster.jobs.planner.catalyst import Catalyst, first_line, frame_of_plan, relation_of
from relstate_dagster.jobs.planner.expression_facts import NotIncremental, check_below, check_deterministic
from relstate_dagster.jobs.planner.trees import class_name, items

#: Rows that a plan holds as constants: each is text in it.
_MOST_ROWS: Final = 1_000
_RECURSION: Final = "WITH RECURSIVE"


def rows_of_recursion(catalyst: Catalyst, plan: Any) -> Any:
    """Compute a recursion of Catalyst's (``UnionLoop``) as a ``LocalRelation`` with the same attributes.

    Raises
    ------
    NotIncremental
        Its rows change with a source or with time, are drawn, or are more than a plan should hold; or Spark cannot compute it.
    """
    if catalyst.has_subquery(plan) or any(relation_of(leaf) is not None for leaf in items(plan.collectLeaves())):
        raise NotIncremental("recursion", _RECURSION, "a recursion that reads sources or views has no incremental form here")
    if catalyst.trees.contains(plan, "PYTHON_UDF"):
        raise NotIncremental("recursion", _RECURSION, "a recursion that calls Python has no incremental form here")
    _check_deterministic(plan)
    try:
        rows = frame_of_plan(catalyst.session, plan).limit(_MOST_ROWS + 1)._jdf.collectAsList()
    except (PySparkException, Py4JJavaError) as error:
        # Where a LIMIT ends it, the query in full knows that.
        reason = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else first_line(error)
        raise NotIncremental("recursion", _RECURSION, f"Spark does not compute it alone: {reason}") from error
    if rows.size() > _MOST_ROWS:
        raise NotIncremental("recursion", _RECURSION, f"more than {_MOST_ROWS:,} rows are not kept in a plan")
    relations = catalyst.companion("org.apache.spark.sql.catalyst.plans.logical.LocalRelation")
    return relations.fromExternalRows(plan.output(), catalyst.trees.seq(list(rows)))


def _check_deterministic(plan: Any) -> None:
    for expression in items(plan.expressions()):
        check_deterministic(expression, class_name(expression))
        check_below(expression)
    for child in items(plan.children()):
        _check_deterministic(child)
