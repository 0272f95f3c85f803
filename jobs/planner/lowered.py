"""Lowered nodes, names for their columns, and projections of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from relstate_dagster.jobs.plan.nodes import Field, Filter, NamedExpr, PlanNode, Project
from relstate_dagster.jobs.planner.expression_facts import references
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.trees import class_name
from relstate_dagster.state_lib.sql_text import quoted

_EXPRESSION_ID = re.compile(r"#\d+L?")


@dataclass(frozen=True, slots=True)
class Lowered:
    """A plan node, and the column that each Catalyst expression id became."""

    node: PlanNode
    names: Mapping[int, str]


class NameSpace:
    """Hands out column names that are unique within one node."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._taken = {name.lower() for name in used}

    def named(self, expression: Any) -> str:
        """Column name for a user's name.

        Names of operators' columns begin with ``_``.
        """
        name = _stable_name(expression)
        return self.unique(f"c{name}" if name.startswith("_") else name)

    def unique(self, wanted: str) -> str:
        """The name as wanted, or with a number if it is taken."""
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name


def _stable_name(expression: Any) -> str:
    """Name of an expression, the same at each planning.

    Spark 4.0 names an aggregate of HAVING or ORDER BY after its text with expression ids, such as ``max(v#36111)``.
    """
    name = str(expression.name())
    return _EXPRESSION_ID.sub("", name) if "#" in name and class_name(expression) == "Alias" else name


def reads_only(expression: Any, side: Lowered) -> bool:
    """Whether an expression reads columns, and all of them from there."""
    read = references(expression)
    return bool(read) and read <= side.names.keys()


def select(node: PlanNode, columns: list[str]) -> PlanNode:
    """Project down to some columns of a node, by name."""
    if list(node.column_names) == columns:
        return node
    return Project(node, tuple(NamedExpr(quoted(c), node.field_named(c)) for c in columns))


def narrowed(child: Lowered, read: Set[int] | None) -> Lowered:
    """Columns of some attributes, by id, and of the key.

    All columns if none are named.
    """
    if read is None:
        return child
    names = {number: name for number, name in child.names.items() if number in read}
    wanted = {*names.values(), *(child.node.stream_key or ())}
    return Lowered(select(child.node, [column for column in child.node.column_names if column in wanted]), names)


def where(write: ExpressionWriter, child: Lowered, conditions: Sequence[Any]) -> Lowered:
    """The rows for which all conditions hold."""
    if not conditions:
        return child
    texts = [write.sql(condition, child.names) for condition in conditions]
    text = texts[0] if len(texts) == 1 else " AND ".join(f"({text})" for text in texts)
    return Lowered(Filter(child.node, text), child.names)


def with_columns(node: PlanNode, extra: list[NamedExpr]) -> PlanNode:
    """A node with more columns, computed of its own."""
    return Project(node, (*(NamedExpr(quoted(f.name), f) for f in node.schema), *extra))


def renamed_apart(side: Lowered, used: tuple[str, ...]) -> Lowered:
    """Rename the columns of a join side that clash with the other side's."""
    if not {n.lower() for n in side.node.column_names} & {n.lower() for n in used}:
        return side
    space = NameSpace(used)
    renamed = {f.name: space.unique(f.name) for f in side.node.schema}
    expressions = tuple(NamedExpr(quoted(f.name), Field(renamed[f.name], f.data_type, f.nullable)) for f in side.node.schema)
    return Lowered(Project(side.node, expressions), {number: renamed[name] for number, name in side.names.items()})
