"""The columns that an aggregate, a window or a sort reads, projected once below it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from relstate_dagster.jobs.plan.nodes import Field, NamedExpr, PlanNode, Project
from relstate_dagster.jobs.planner.catalyst import Catalyst, type_ddl
from relstate_dagster.jobs.planner.expression_facts import expression_id
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.lowered import Lowered, NameSpace
from relstate_dagster.jobs.planner.trees import class_name, items
from relstate_dagster.state_lib.sql_text import quoted


class InputColumns:
    """Collects the columns that are read.

    Parameters
    ----------
    keep : columns of the child that are kept as well.
    """

    def __init__(self, write: ExpressionWriter, child: Lowered, *, keep: Collection[str] = ()) -> None:
        self._write = write
        self._child = child
        self.names = child.names
        self._columns: dict[str, NamedExpr] = {}
        self._space = NameSpace(child.node.column_names)
        self._attributes: dict[str, Any] = {}
        #: The columns of the attributes that stand for them in calls, by id.
        self.attribute_names: dict[int, str] = {}
        for f in child.node.schema:
            if f.name in keep:
                self._columns[quoted(f.name)] = NamedExpr(quoted(f.name), f)

    def column(self, expression: Any, wanted: str) -> str:
        """The column of an expression; a new one has the wanted name if free."""
        sql = self._write.sql(expression, self.names)
        if class_name(expression) == "AttributeReference":
            return self._child_column(self._child.node.field_named(self.names[expression_id(expression)]))
        return self._add(sql, type_ddl(expression.dataType()), bool(expression.nullable()), wanted)

    def computed(self, sql: str, data_type: str, wanted: str = "_value") -> str:
        """The column of a computed SQL expression over the child."""
        for field in self._child.node.schema:
            if sql == quoted(field.name):
                return self._child_column(field)
        return self._add(sql, data_type, True, wanted)

    def _child_column(self, field: Field) -> str:
        return self._columns.setdefault(quoted(field.name), NamedExpr(quoted(field.name), field)).output.name

    def _add(self, sql: str, data_type: str, nullable: bool, wanted: str) -> str:
        if sql not in self._columns:
            self._columns[sql] = NamedExpr(sql, Field(self._space.unique(wanted), data_type, nullable))
        return self._columns[sql].output.name

    def call_over_columns(self, call: Any, catalyst: Catalyst) -> tuple[Any, list[str]]:
        """The call with columns of the input for its non-constant arguments."""
        columns: list[str] = []

        def over(expression: Any) -> Any:
            if expression.foldable():
                return expression
            name = self.column(expression, "_value")
            if name not in columns:
                columns.append(name)
            return self.attribute(name, expression, catalyst)

        function = call.aggregateFunction()
        children = [
            catalyst.trees.with_children(child, over) if class_name(child) == "SortOrder" else over(child)
            for child in items(function.children())
        ]
        replaced = [function.withNewChildren(catalyst.trees.seq(children))]
        if call.filter().isDefined():
            replaced.append(over(call.filter().get()))
        return call.withNewChildren(catalyst.trees.seq(replaced)), columns

    def attribute(self, column: str, like: Any, catalyst: Catalyst) -> Any:
        """The attribute for a column in calls, of its expression's type."""
        if column not in self._attributes:
            created = catalyst.trees.alias(like, column).toAttribute()
            self._attributes[column] = created
            self.attribute_names[expression_id(created)] = column
        return self._attributes[column]

    def type_of(self, column: str) -> str:
        """The DDL type of one of the columns."""
        return next(e.output.data_type for e in self._columns.values() if e.output.name == column)

    def node(self) -> PlanNode:
        """The child with these columns and no others."""
        expressions = tuple(self._columns.values())
        names = tuple(e.output.name for e in expressions)
        if names == self._child.node.column_names and all(e.is_column for e in expressions):
            return self._child.node
        return Project(self._child.node, expressions)
