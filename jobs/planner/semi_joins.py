"""Places of semi and anti joins, and semi joins as inner ones.

It goes to the one table it asks about, unless the joins below it keep few rows anyway. Its left side is kept in state with
the number of matches of each row. For ``o_orderkey IN (…)`` over orders joined with all their lines, these are the orders
instead of the lines, and every join above it sees the few that are left. Where another side of the joins is filtered, it is
their result that has few rows, and the order of the query stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relstate_dagster.jobs.plan.nodes import Join
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.expression_facts import expression_id, references
from relstate_dagster.jobs.planner.trees import class_name, items

_ONE_SIDED = {"LeftSemi", "LeftAnti"}
_PAIRING = {"Inner", "Cross"}
_SELECTIVE = {"Filter", "GlobalLimit", "LocalLimit"}


def pushed_below_join(catalyst: Catalyst, plan: Any) -> Any | None:
    """A semi or anti join moved below the inner join on its left; else ``None``.

    Parameters
    ----------
    plan : a Join of Catalyst.
    """
    if class_name(plan.joinType()) not in _ONE_SIDED or not plan.condition().isDefined():
        return None
    condition = plan.condition().get()
    if catalyst.has_subquery(condition):
        return None
    above = plan.left()
    joined = above
    if class_name(above) == "Project":
        if any(class_name(column) != "AttributeReference" for column in items(above.projectList())):
            return None
        joined = above.child()
    if class_name(joined) != "Join" or class_name(joined.joinType()) not in _PAIRING:
        return None
    asked = references(condition) - _columns(plan.right())
    sides = [joined.left(), joined.right()]
    for n, (side, other) in enumerate(zip(sides, reversed(sides), strict=True)):
        if asked and asked <= _columns(side) and not _is_selective(other):
            sides[n] = plan.withNewChildren(catalyst.trees.seq([side, plan.right()]))
            moved = joined.withNewChildren(catalyst.trees.seq(sides))
            return moved if above is joined else above.withNewChildren(catalyst.trees.seq([moved]))
    return None


def matching_once(join: Join) -> Join:
    """A semi join as an inner join, if a row matches one at most.

    Neither side counts matches then.

    The inner join has the columns of the right side besides.
    """
    key = join.right.stream_key
    if join.join_type != "left semi" or key is None or not set(key) <= {k.right for k in join.keys}:
        return join
    return replace(join, join_type="inner")


def _columns(plan: Any) -> set[int]:
    return {expression_id(column) for column in items(plan.output())}


def _is_selective(plan: Any) -> bool:
    kind = class_name(plan)
    if kind in _SELECTIVE or (kind == "Join" and class_name(plan.joinType()) in _ONE_SIDED):
        return True
    return any(_is_selective(child) for child in items(plan.children()))
