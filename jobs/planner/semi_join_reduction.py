"""Aggregates over those groups alone that the rows they are joined with can meet.

The average of each part's lines is needed for parts of one brand only. So the join with those parts, wherever it stands
above or beside, is also made below the aggregate. What the aggregate keeps, folds and looks up then follows the parts of
that brand and not all parts. (Semi-join reduction by sideways information passing, a magic set; since the filtered relation
has each key once, the semi join is an inner one and keeps nothing.)

The price: when the filtered relation changes, the aggregate's input is looked up by the key. So it is done where that input
can be looked up in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relstate_dagster.jobs.plan.aggregates.registry import with_kinds
from relstate_dagster.jobs.plan.nodes import (
    Aggregate,
    Field,
    Filter,
    Join,
    JoinKey,
    NamedExpr,
    PlanNode,
    Project,
    UnionAll,
    walk,
)
from relstate_dagster.jobs.planner.in_place import is_only_read, readable_in_place, with_sides_in_place
from relstate_dagster.jobs.planner.lowered import NameSpace, select
from relstate_dagster.state_lib.sql_text import quoted

#: Joins of whose one side only the rows count that match the other side.
_RIGHT_ONLY_MATCHES = frozenset({"inner", "left outer", "left semi", "left anti", "existence"})
_LEFT_ONLY_MATCHES = frozenset({"inner", "right outer", "left semi"})


def reduced(join: Join) -> Join:
    """A join whose aggregates keep only groups of the other side's filtered relations.

    Its sides are in place where they can be, before and after: what is arranged for the join is what the aggregates meet.
    """
    left, right = join.left, join.right
    for key in join.keys:
        if key.null_safe:
            continue
        if join.join_type in _RIGHT_ONLY_MATCHES:
            for keys in _filtered_keys(left, key.left):
                right = _with_groups_of(right, key.right, keys)
        if join.join_type in _LEFT_ONLY_MATCHES:
            for keys in _filtered_keys(right, key.right):
                left = _with_groups_of(left, key.left, keys)
    return _with_sides(join, left, right)


def keeps_no_more(plan: PlanNode, other: PlanNode) -> bool:
    """Whether a plan keeps as few aggregates as another.

    One that is read twice is kept once, unless it is reduced for one.
    """
    one, two = (sum(isinstance(node, Aggregate) for node in walk(root)) for root in (plan, other))
    return one <= two


def _filtered_keys(node: PlanNode, column: str) -> Iterator[PlanNode]:
    """Filtered relations whose only key covers the column's values in the node."""
    if is_only_read(node):
        if node.stream_key == (column,) and any(isinstance(below, Filter) for below in walk(node)):
            yield node
        return
    match node:
        case Filter() | Project() | Aggregate() if column in _passed_on(node):
            yield from _filtered_keys(node.child, _passed_on(node)[column])
        case Join(join_type="inner" | "left semi"):
            for side, same in _same_columns(node, column):
                yield from _filtered_keys(side, same)
        case Join(join_type="left outer" | "left anti" | "existence") if column in node.left.column_names:
            yield from _filtered_keys(node.left, column)


def _with_groups_of(node: PlanNode, column: str, keys: PlanNode) -> PlanNode:
    """A node reduced to rows with some keys, or itself if nothing is gained."""
    match node:
        case UnionAll():
            inputs = tuple(_with_groups_of(branch, column, keys) for branch in node.inputs)
            return node if inputs == node.inputs else replace(node, inputs=inputs)
        case Join(join_type="inner" | "left outer" | "left semi" | "left anti" | "existence"):
            left, right = node.left, node.right
            for side, same in _same_columns(node, column):
                if side is node.left:
                    left = _with_groups_of(left, same, keys)
                else:
                    right = _with_groups_of(right, same, keys)
            return _with_sides(node, left, right)
        case Filter() | Project() | Aggregate():
            child = _child_with_groups_of(node, column, keys)
            if child is node.child:
                return node
            # How a call is kept depends on its input.
            return with_kinds(replace(node, child=child)) if isinstance(node, Aggregate) else replace(node, child=child)
    return node


def _child_with_groups_of(node: Filter | Project | Aggregate, column: str, keys: PlanNode) -> PlanNode:
    if isinstance(node, Aggregate) and column in node.group and readable_in_place(node.child):
        return node.child if keys in walk(node.child) else _joined(node.child, column, keys)
    below = _passed_on(node).get(column)
    return node.child if below is None else _with_groups_of(node.child, below, keys)


def _passed_on(node: Filter | Project | Aggregate) -> dict[str, str]:
    """The columns of a node that are columns of its child, and which."""
    if isinstance(node, Project):
        return node.passed_on
    return {name: name for name in (node.group if isinstance(node, Aggregate) else node.column_names)}


def _joined(node: PlanNode, column: str, keys: PlanNode) -> PlanNode:
    """Rows of a node with some keys.

    Joins below it come after, with the few rows that are left.
    """
    match node:
        case Project(child=Join()) if column in node.passed_on:
            return replace(node, child=_joined(node.child, node.passed_on[column], keys))
        case Join() if column in node.left.column_names:
            return _with_sides(node, _joined(node.left, column, keys), node.right)
        case Join():
            return _with_sides(node, node.left, _joined(node.right, column, keys))
    key = _named_apart(keys, node.column_names)
    join = with_sides_in_place(Join(node, key, "inner", (JoinKey(column, key.column_names[0]),)))
    return select(join, list(node.column_names))


def _named_apart(keys: PlanNode, used: tuple[str, ...]) -> PlanNode:
    """The key of a filtered relation alone, by a name that is not taken."""
    (key,) = keys.stream_key or ()
    name = NameSpace(used).unique(key)
    if keys.column_names == (name,):
        return keys
    return Project(keys, (NamedExpr(quoted(key), Field(name, keys.field_named(key).data_type, nullable=False)),))


def _same_columns(join: Join, column: str) -> Iterator[tuple[PlanNode, str]]:
    """Sides of a join with a column, or with one that equals it."""
    if column in join.left.column_names:
        yield join.left, column
        yield from ((join.right, key.right) for key in join.keys if key.left == column and not key.null_safe)
    elif join.join_type == "inner":
        yield join.right, column
        yield from ((join.left, key.left) for key in join.keys if key.right == column and not key.null_safe)


def _with_sides(join: Join, left: PlanNode, right: PlanNode) -> Join:
    if left is join.left and right is join.right:
        return join
    return with_sides_in_place(replace(join, left=left, right=right, left_in_place=False, right_in_place=False))
