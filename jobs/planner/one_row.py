"""An uncorrelated scalar subquery as a relation of one row, joined to its readers."""

from __future__ import annotations

from typing import Final

from relstate_dagster.jobs.plan.aggregates.registry import with_kinds
from relstate_dagster.jobs.plan.nodes import AggCall, Aggregate, Field, NamedExpr, PlanNode, Project
from relstate_dagster.state_lib.sql_text import quoted

#: What the columns of scalar subqueries are called, and a number.
SUBQUERY: Final = "_subquery"
#: The condition and message with which Spark ends a query whose scalar subquery has more than one row.
_TOO_MANY_ROWS: Final = "'[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery used as an expression.'"


def at_most_one_row(node: PlanNode, value: str, name: str) -> PlanNode:
    """A scalar subquery's value as a relation of at most one row and one column.

    If nothing in the subquery guarantees at most one row, its rows are counted. More than one raise what Spark raises; no
    row at all gives NULL, as in Spark.
    """
    field = node.field_named(value)
    column = Field(name, field.data_type, True)
    if node.stream_key == ():
        return Project(node, (NamedExpr(quoted(value), column),))
    only = Project(node, (NamedExpr(quoted(value), Field("_value", field.data_type, True)),))
    calls = (
        AggCall("count", (), False, "count(1)", Field("_rows", "bigint", False)),
        AggCall("first", ("_value",), False, "first(`_value`)", Field("_only", field.data_type, True), (field.data_type,)),
    )
    checked = f"CASE WHEN `_rows` > 1 THEN raise_error({_TOO_MANY_ROWS}) ELSE `_only` END"
    return Project(with_kinds(Aggregate(only, (), calls)), (NamedExpr(checked, column),))


def has_one_row(node: PlanNode) -> bool:
    """Whether a relation always has exactly one row.

    A global aggregate has, unless HAVING takes it.
    """
    while isinstance(node, Project):
        node = node.child
    return isinstance(node, Aggregate) and not node.group


def is_of_subquery(node: PlanNode) -> bool:
    """Whether a relation has the value of a scalar subquery."""
    return isinstance(node, Project) and len(node.schema) == 1 and node.schema[0].name.startswith(SUBQUERY)
