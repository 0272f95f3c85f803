"""Joins of two lowered sides: key parts of the condition, and the join type."""

from __future__ import annotations

from typing import Any

from relstate_dagster.jobs.plan.nodes import Field, Join, JoinKey, NamedExpr, PlanNode, Project
from relstate_dagster.jobs.planner.catalyst import Catalyst, type_ddl
from relstate_dagster.jobs.planner.expression_facts import NotIncremental, expression_id
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.in_place import with_sides_in_place
from relstate_dagster.jobs.planner.lowered import Lowered, NameSpace, reads_only, renamed_apart, select, with_columns
from relstate_dagster.jobs.planner.not_in import cannot_be_null, not_in, null_aware_equality
from relstate_dagster.jobs.planner.semi_join_reduction import reduced
from relstate_dagster.jobs.planner.semi_joins import matching_once
from relstate_dagster.jobs.planner.trees import class_name

_JOIN_TYPES = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left outer",
    "RightOuter": "right outer",
    "FullOuter": "full outer",
    "LeftSemi": "left semi",
    "LeftAnti": "left anti",
    "LeftSingle": "left outer",
    "ExistenceJoin": "existence",
}
_ONE_SIDED = ("left semi", "left anti", "existence")


def join_type_of(plan: Any) -> str:
    """Join type of a Catalyst join.

    Raises
    ------
    NotIncremental : it is one that nothing here can keep.
    """
    found = _JOIN_TYPES.get(class_name(plan.joinType()))
    if found is None:
        raise NotIncremental("unknown-join", str(plan.joinType()), "this join type has no incremental form here")
    return found


def is_one_sided(join_type: str) -> bool:
    """Whether the right side only decides which left rows there are."""
    return join_type in _ONE_SIDED


def _may_be_null(side: PlanNode) -> bool:
    """Whether all columns of a row's key may be NULL.

    A key without columns is.
    """
    return side.stream_key is not None and all(side.field_named(column).nullable for column in side.stream_key)


class Joins:
    """Makes joins of lowered sides.

    Attributes
    ----------
    has_reduced : whether an aggregate was reduced to the groups that it is asked for; none is without ``reduces``.
    """

    def __init__(self, catalyst: Catalyst, write: ExpressionWriter, *, reduces: bool) -> None:
        self._catalyst = catalyst
        self._write = write
        self._reduces = reduces
        self.has_reduced = False

    def joined(self, plan: Any, left: Lowered, right: Lowered, parts: list[Any]) -> Lowered:
        """A join.

        Parameters
        ----------
        plan : the Join of Catalyst's.
        parts : its condition, apart at AND, without what depends on the time.
        """
        join_type = join_type_of(plan)
        right = renamed_apart(right, left.node.column_names)
        if join_type == "left anti":
            equalities = [null_aware_equality(part) for part in parts]
            parts = [p if e is None or not cannot_be_null(e) else e for p, e in zip(parts, equalities, strict=True)]
            if len(parts) == 1 and equalities[0] is not None and parts[0] is not equalities[0]:
                kept = self._not_in(left, right, equalities[0])
                if kept is not None:
                    return kept
        left, right, keys, rest = self._split_condition(left, right, parts)
        names = {**left.names, **right.names}
        residual = " AND ".join(f"({self._write.sql(part, names)})" for part in rest) or None
        exists = None
        if join_type == "existence":
            exists = NameSpace(left.node.column_names).unique("_exists")
            names = {**left.names, expression_id(plan.joinType().exists()): exists}
        elif is_one_sided(join_type):
            names = dict(left.names)
        left_there = None
        if join_type == "full outer" and _may_be_null(left.node) and _may_be_null(right.node):
            left_there = NameSpace((*left.node.column_names, *right.node.column_names)).unique("_left")
            there = NamedExpr("true", Field(left_there, "boolean", False))
            left = Lowered(with_columns(left.node, [there]), left.names)
        join = Join(left.node, right.node, join_type, tuple(keys), residual, exists, left_there=left_there)
        node = select(self._reduced(with_sides_in_place(matching_once(join))), list(join.column_names))
        return Lowered(node, names)

    def _reduced(self, join: Join) -> Join:
        smaller = reduced(join) if self._reduces else join
        self.has_reduced = self.has_reduced or smaller is not join
        return smaller

    def _not_in(self, left: Lowered, right: Lowered, equality: Any) -> Lowered | None:
        left_with_key, right_with_key, keys, _ = self._split_condition(left, right, [equality])
        if not keys:
            return None
        space = NameSpace((*left_with_key.node.column_names, *right_with_key.node.column_names))
        kept = not_in(left_with_key.node, right_with_key.node, keys[0], space.unique("_any_null"))
        return Lowered(kept, dict(left.names))

    def _split_condition(
        self, left: Lowered, right: Lowered, parts: list[Any]
    ) -> tuple[Lowered, Lowered, list[JoinKey], list[Any]]:
        keys: list[JoinKey] = []
        rest: list[Any] = []
        space = NameSpace((*left.node.column_names, *right.node.column_names))
        for part in parts:
            kind = class_name(part)
            sides = None
            if kind in ("EqualTo", "EqualNullSafe"):
                a, b = part.left(), part.right()
                if reads_only(a, left) and reads_only(b, right):
                    sides = (a, b)
                elif reads_only(b, left) and reads_only(a, right):
                    sides = (b, a)
            if sides is None:
                rest.append(part)
                continue
            left, left_column = self._as_column(left, sides[0], space)
            right, right_column = self._as_column(right, sides[1], space)
            key = JoinKey(left_column, right_column, kind == "EqualNullSafe")
            if key not in keys:
                keys.append(key)
        return left, right, keys, rest

    def _as_column(self, side: Lowered, expression: Any, space: NameSpace) -> tuple[Lowered, str]:
        """The side's column of a key expression, computed below the join if need be."""
        if class_name(expression) == "AttributeReference":
            return side, side.names[expression_id(expression)]
        sql = self._write.sql(expression, side.names)
        if isinstance(side.node, Project):
            for existing in side.node.expressions:
                if existing.sql == sql and existing.output.name.startswith("_join_key"):
                    return side, existing.output.name
        name = space.unique("_join_key")
        extra = NamedExpr(sql, Field(name, type_ddl(expression.dataType()), bool(expression.nullable())))
        return Lowered(with_columns(side.node, [extra]), side.names), name
