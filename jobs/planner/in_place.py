"""Which sides of a join need no state: those whose rows of any epoch can be looked up where they are already.

A source keeps its rows, and a view keeps its own; what filters, projects, stacks or inner-joins these can be evaluated
again for some keys at the cost of looking those up. Such a side is not copied: the backfill writes nothing for it, and an
epoch neither. (RisingWave's delta join, over the sources themselves.)
"""

from __future__ import annotations

from dataclasses import replace

from jobs.planner.nodes import Filter, Join, PlanNode, Project, Scan, UnionAll
from state_lib.constants import ROW_ID


def readable_in_place(node: PlanNode) -> bool:
    """Whether the rows of a node can be had, for some keys, from the relations below it."""
    if isinstance(node, Scan):
        # A Serial row id is given to a row when it first comes in; reading the row again later would give another.
        return ROW_ID not in node.column_names
    if isinstance(node, Join):
        return node.join_type == "inner" and node.left_in_place and node.right_in_place
    return isinstance(node, Filter | Project | UnionAll) and all(readable_in_place(child) for child in node.children)


def with_sides_in_place(join: Join) -> Join:
    """The join with every side looked up in place that can be."""
    return replace(
        join,
        left_in_place=not join.left_has_associations and readable_in_place(join.left),
        right_in_place=not join.right_has_associations and readable_in_place(join.right),
    )
