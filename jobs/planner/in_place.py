"""Join sides without state: their rows can be looked up in place.

A source keeps its rows, and a view keeps its own. Filters, projections, unions and inner joins of these can be evaluated
again for some keys, at the cost of looking those up. Such a side is not copied: the backfill writes nothing for it, and an
epoch neither. (RisingWave's delta join, over the sources themselves.) So it is with the rows of an aggregate, looked up by
its groups: its value state has them.

Rows of a source that a filter leaves are arranged: an epoch reads those few, if few they are, and not all that were filtered.

A lookup reads the key column of what is looked up, all of it unless it is ordered by that. So a side with few rows out of
many is better kept if every epoch looks it up in another order. An example is the few rows of a part's lines, looked up by
the averages of all parts.
"""

from __future__ import annotations

from dataclasses import replace

from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy
from relstate_dagster.jobs.plan.aggregates.registry import kinds_of
from relstate_dagster.jobs.plan.nodes import (
    Aggregate,
    Arrange,
    Filter,
    Join,
    NamedExpr,
    PlanNode,
    Project,
    Scan,
    UnionAll,
    walk,
)
from relstate_dagster.jobs.planner.lowered import select
from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.sql_text import quoted


def readable_in_place(node: PlanNode) -> bool:
    """Whether a node's rows of some keys can be read from the relations below."""
    if isinstance(node, Scan):
        # A source's row is given a Serial id when it first comes in; reading the row again later would give another.
        return node.stores_row_ids or ROW_ID not in node.column_names
    if isinstance(node, Join):
        if node.join_type != "inner" or not (node.left_in_place and node.right_in_place):
            return False
    elif not isinstance(node, Filter | Project | UnionAll | Arrange):
        return False
    return all(readable_in_place(child) for child in node.children)


def is_only_read(node: PlanNode) -> bool:
    """Whether a node only filters and projects relations.

    It is read again rather than held.
    """
    return all(isinstance(below, Scan | Filter | Project | UnionAll | Arrange) for below in walk(node))


def with_sides_in_place(join: Join) -> Join:
    """The join with every side looked up in place that can be, and should."""
    left, right = {key.left for key in join.keys}, {key.right for key in join.keys}
    reads_left = not join.left_has_associations and readable_in_place(join.left)
    reads_right = not join.right_has_associations and readable_in_place(join.right)
    if join.join_type == "inner" and reads_left != reads_right:
        # The other side comes out of state: an aggregate, say, which changes whenever anything below it does.
        reads_left = reads_left and _is_looked_up_well(join.left, left)
        reads_right = reads_right and _is_looked_up_well(join.right, right)
    return replace(
        join,
        left=_arranged(join.left) if reads_left else join.left,
        right=_arranged(join.right) if reads_right else join.right,
        left_in_place=reads_left or (not join.left_has_associations and _is_kept_by_aggregate(join.left, left)),
        right_in_place=reads_right or (not join.right_has_associations and _is_kept_by_aggregate(join.right, right)),
    )


def _arranged(side: PlanNode) -> PlanNode:
    """A side in place with filtered rows of keyed sources, arranged by key."""
    below = list(walk(side))
    filtered = any(isinstance(node, Filter) for node in below) and not any(isinstance(node, Arrange) for node in below)
    if not filtered or not is_only_read(side):
        return side
    if side.stream_key:
        return Arrange(side)
    with_key = _with_key(side)
    return side if with_key is None else select(Arrange(with_key), list(side.column_names))


def _with_key(side: PlanNode) -> Project | None:
    """A projection with the key of its rows added.

    ``None`` if there is no key, or its names are taken.
    """
    if not isinstance(side, Project) or not side.child.stream_key:
        return None
    passed_on = set(side.passed_on.values())
    left_out = [f for f in side.child.schema if f.name in side.child.stream_key and f.name not in passed_on]
    if any(f.name in side.column_names for f in left_out):
        return None
    return replace(side, expressions=(*side.expressions, *(NamedExpr(quoted(f.name), f) for f in left_out)))


def _is_looked_up_well(side: PlanNode, columns: set[str]) -> bool:
    """Whether lookups in place are cheap.

    State would have as many rows, or rows lie in the order of the lookup.
    """
    return not any(isinstance(node, Filter | Join) for node in walk(side)) or _is_looked_up_by_key(side, columns)


def _is_kept_by_aggregate(node: PlanNode, columns: set[str]) -> bool:
    """Whether a side is an aggregate's value state, in the order of the lookup."""
    match node:
        case Aggregate():
            strategies = {kind.strategy for kind in kinds_of(node)}
            return CallStrategy.MATERIALIZED_INPUT not in strategies and (not node.group or node.group[0] in columns)
        case Project():
            return _is_kept_by_aggregate(node.child, _below(node, columns))
    return False


def _below(node: Project, columns: set[str]) -> set[str]:
    """The columns of a projection's input that some of its columns are."""
    return {theirs for ours, theirs in node.passed_on.items() if ours in columns}


def _is_looked_up_by_key(node: PlanNode, columns: set[str]) -> bool:
    match node:
        case Scan():
            return node.stream_key is not None and node.stream_key[0] in columns
        case Filter() | Arrange():
            return _is_looked_up_by_key(node.child, columns)
        case Project():
            return _is_looked_up_by_key(node.child, _below(node, columns))
    return False
