"""The first row of each partition of an append-only input, as an aggregate.

Asked for by ``row_number() OVER (PARTITION BY k ORDER BY t DESC) = 1``.

That is how a query takes the newest row of a key. A window keeps its whole input and computes each affected partition again.
Where rows are only added, the first row of a partition is the least or the greatest of structs that begin with the columns
of the order. It is value state of one row a partition, into which a change is folded.

Of rows that tie, ``row_number`` may take any; here it is the one with the least other columns (greatest, if descending).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from relstate_dagster.jobs.plan.aggregates.registry import with_kinds
from relstate_dagster.jobs.plan.nodes import (
    AggCall,
    Aggregate,
    Field,
    Filter,
    Materialize,
    NamedExpr,
    PlanNode,
    Project,
    Window,
)
from relstate_dagster.jobs.planner.expression_facts import expression_id
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.input_columns import InputColumns
from relstate_dagster.jobs.planner.lowered import Lowered, NameSpace
from relstate_dagster.jobs.planner.trees import class_name, items
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.row_encoding.layout import check_key_type
from relstate_dagster.state_lib.slots import check_nested
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.sql_type import SqlType

_ROW: Final = "_row"
#: Comparisons that only 1 passes, of a number that begins at 1: with the number on their left, and on their right.
_ONLY_FIRST: Final = (
    {("EqualTo", 1), ("EqualNullSafe", 1), ("LessThanOrEqual", 1), ("LessThan", 2)},
    {("EqualTo", 1), ("EqualNullSafe", 1), ("GreaterThanOrEqual", 1), ("GreaterThan", 2)},
)


def is_row_number(expression: Any) -> bool:
    """Whether one of a window's expressions numbers its rows."""
    if class_name(expression) != "Alias" or class_name(expression.child()) != "WindowExpression":
        return False
    return class_name(expression.child().windowFunction()) == "RowNumber"


@dataclass(frozen=True, slots=True)
class FirstRow:
    """A window that numbers rows, with a filter that keeps the first ones.

    Parameters
    ----------
    window : Catalyst's node.
    condition : the one of the filter's that says so.
    descending : whether the order is, in all its columns; ``None`` where it is neither that nor ascending in all.
    """

    window: Any
    condition: Any
    descending: bool | None

    @classmethod
    def of(cls, window: Any, conditions: list[Any]) -> FirstRow | None:
        """Recognize it; ``None`` for other windows, or no order."""
        if class_name(window) != "Window" or not window.partitionSpec().size() or not window.orderSpec().size():
            return None
        numbers = [e for e in items(window.windowExpressions()) if class_name(e) != "AttributeReference"]
        if len(numbers) != 1 or not is_row_number(numbers[0]):
            return None
        found = [c for c in conditions if _keeps_only_first(c, expression_id(numbers[0]))]
        return cls(window, found[0], _is_descending(items(window.orderSpec()))) if found else None

    def lowered(self, write: ExpressionWriter, child: Lowered) -> Lowered | None:
        """Rows that the filter keeps; ``None`` where only the window finds them."""
        if not child.node.append_only or self.descending is None:
            return None
        space = NameSpace(child.node.column_names)
        inputs = InputColumns(write, child)
        partition = tuple(dict.fromkeys(inputs.column(e, "_partition") for e in items(self.window.partitionSpec())))
        order = tuple(dict.fromkeys(inputs.column(o.child(), "_order") for o in items(self.window.orderSpec())))
        shown = {name: child.node.field_named(name) for name in child.names.values()}
        for name, field in shown.items():
            inputs.computed(quoted(name), field.data_type)
        below = inputs.node()
        # Grouping makes one value of those that are equal: which of -0.0 and 0.0 a row has, the row knows.
        in_group = {name for name in partition if _is_the_same_where_equal(below.field_named(name).type)}
        in_row = [*order, *(name for name in shown if name not in in_group and name not in order)]
        row = _struct(below, in_row)
        if row is None:
            return None
        with_rows = Project(below, (*(NamedExpr(quoted(p), below.field_named(p)) for p in partition), row))
        function = "max" if self.descending else "min"
        result = Field(f"{_ROW}_of_group", row.output.data_type)
        call = AggCall(function, (_ROW,), False, f"{function}({quoted(_ROW)})", result, (row.output.data_type,))
        first = with_kinds(Aggregate(with_rows, partition, (call,)))
        columns = [
            NamedExpr(quoted(name) if name in in_group else f"{quoted(result.name)}.{quoted(name)}", f)
            for name, f in shown.items()
        ]
        number = next(e for e in items(self.window.windowExpressions()) if class_name(e) != "AttributeReference")
        numbered = Field(space.named(number), "int", False)
        hidden = [NamedExpr(quoted(p), below.field_named(p)) for p in partition if p not in in_group or p not in shown]
        key = [NamedExpr(e.sql, Field(space.unique(e.output.name), e.output.data_type)) for e in hidden]
        names = {**child.names, expression_id(number): numbered.name}
        return Lowered(Project(first, (*columns, NamedExpr("1", numbered), *key)), names)

    def filtered(self, write: ExpressionWriter, window: Lowered) -> Lowered:
        """Rows of the lowered window that the filter keeps.

        They are keyed by the partition, where equal values of it are the same.
        """
        assert isinstance(window.node, Window)
        partition = window.node.partition
        first = Filter(window.node, write.sql(self.condition, window.names))
        if not all(_is_the_same_where_equal(first.field_named(name).type) for name in partition):
            return Lowered(first, window.names)
        return Lowered(Project(first, tuple(NamedExpr(quoted(f.name), f) for f in first.schema), partition), window.names)


def _is_descending(order: Iterable[Any]) -> bool | None:
    """Whether the order is the reverse of least and greatest, with NULL before all values."""
    directions = {(class_name(o.direction()), class_name(o.nullOrdering())) for o in order}
    if directions == {("Descending", "NullsLast")}:
        return True
    return False if directions == {("Ascending", "NullsFirst")} else None


def _keeps_only_first(condition: Any, number: int) -> bool:
    kind = class_name(condition)
    if not any(kind == k for comparisons in _ONLY_FIRST for k, _ in comparisons):
        return False
    sides = condition.left(), condition.right()
    for column, literal, comparisons in zip(sides, reversed(sides), _ONLY_FIRST, strict=True):
        if class_name(column) == "AttributeReference" and expression_id(column) == number and class_name(literal) == "Literal":
            return (kind, literal.value()) in comparisons
    return False


def _struct(node: PlanNode, names: list[str]) -> NamedExpr | None:
    """Columns as one struct in this order.

    ``None`` if such structs have no order, or state cannot hold them.
    """
    fields = [node.field_named(name) for name in names]
    data_type = f"struct<{', '.join(f'{quoted(f.name)}: {f.data_type}' for f in fields)}>"
    try:
        check_key_type(parse_type(data_type))
        check_nested(parse_type(data_type), "row_number")
    except PlanError:
        return None
    parts = ", ".join(f"{text_literal(f.name)}, {quoted(f.name)}" for f in fields)
    return NamedExpr(f"named_struct({parts})", Field(_ROW, data_type, False))


def _is_the_same_where_equal(of_group: SqlType) -> bool:
    """Whether values that are grouped together are identical.

    Not so for zeros of two signs, and under collations.
    """
    return not (of_group.has_floats or of_group.has_collations)


def with_changelog_checks(plan: Materialize) -> Materialize:
    """The plan of a changelog's newest rows, with a check that each key has one.

    Raises
    ------
    PlanError : it is kept some other way, since its rows have no order.
    """

    def checked(node: PlanNode) -> PlanNode:
        if isinstance(node, Aggregate):
            return replace(node, is_of_changelog=True)
        if isinstance(node, Filter | Project):
            return replace(node, child=checked(node.child))
        raise PlanError(
            "rows of a changelog are compared with each other, and columns of type MAP or VARIANT cannot be: leave them out, "
            "or declare them as STRING of JSON"
        )

    return replace(plan, child=checked(plan.child))
