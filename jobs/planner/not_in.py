"""NOT IN: an anti join whose equality is also true where it is NULL.

It does not compare every row with every other one.

``a NOT IN (SELECT b FROM R)`` holds where R is empty, or where a is not NULL, no b equals it and no b is NULL. Only the middle
one of these needs the rows of R, and that is a plain anti join. The rest is one row about R, the largest ``b IS NULL``: NULL
where R is empty, true where some b is NULL. It hardly ever changes; when it does, all rows that the anti join left over
are decided again.
"""

from __future__ import annotations

from typing import Any

from relstate_dagster.jobs.plan.aggregates.registry import with_kinds
from relstate_dagster.jobs.plan.nodes import AggCall, Aggregate, Field, Filter, Join, JoinKey, NamedExpr, PlanNode, Project
from relstate_dagster.jobs.planner.in_place import with_sides_in_place
from relstate_dagster.jobs.planner.trees import class_name
from relstate_dagster.state_lib.sql_text import quoted

_IS_NULL = Field("_is_null", "boolean", False)


def null_aware_equality(condition: Any) -> Any | None:
    """The equality in ``a = b OR (a = b) IS NULL``; else ``None``.

    Spark writes NOT IN so.
    """
    if class_name(condition) != "Or":
        return None
    equality, is_null = condition.left(), condition.right()
    if class_name(equality) != "EqualTo" or class_name(is_null) != "IsNull":
        return None
    return equality if is_null.child().semanticEquals(equality) else None


def cannot_be_null(equality: Any) -> bool:
    """Whether both sides of an equality always have a value."""
    return not (equality.left().nullable() or equality.right().nullable())


def not_in(left: PlanNode, right: PlanNode, key: JoinKey, flag: str) -> PlanNode:
    """The rows of ``left`` whose key column is NOT IN that of ``right``.

    Parameters
    ----------
    flag : a name that no column of either side has.
    """
    without_match = with_sides_in_place(Join(left, right, "left anti", (JoinKey(key.left, key.right),), None))
    is_null = Project(right, (NamedExpr(f"{quoted(key.right)} IS NULL", _IS_NULL),))
    largest = AggCall(
        "max", (_IS_NULL.name,), False, f"max({quoted(_IS_NULL.name)})", Field(flag, "boolean", True), (_IS_NULL.data_type,)
    )
    about_right = with_kinds(Aggregate(is_null, (), (largest,)))
    both = with_sides_in_place(Join(without_match, about_right, "inner", (), None))
    kept = Filter(both, f"{quoted(flag)} IS NULL OR (NOT {quoted(flag)} AND {quoted(key.left)} IS NOT NULL)")
    return Project(kept, tuple(NamedExpr(quoted(f.name), f) for f in left.schema))
