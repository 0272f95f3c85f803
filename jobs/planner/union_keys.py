"""The key of a UNION ALL of keyed branches: branch number, and branch key."""

from __future__ import annotations

from relstate_dagster.jobs.plan.nodes import Field, PlanNode
from relstate_dagster.jobs.planner.lowered import NameSpace
from relstate_dagster.state_lib.sql_text import quoted


def branch_keys(nodes: list[PlanNode], selected: list[list[tuple[str, Field]]], space: NameSpace) -> tuple[str, ...]:
    """Add a hidden branch number and key columns.

    Columns of one type are shared between branches.
    """
    branch = space.unique("_branch")
    shared: dict[tuple[str, int], Field] = {}
    uses: list[dict[tuple[str, int], str]] = []
    for node in nodes:
        counts: dict[str, int] = {}
        use: dict[tuple[str, int], str] = {}
        for column in node.stream_key or ():
            data_type = node.field_named(column).data_type
            place = (data_type, counts.get(data_type, 0))
            counts[data_type] = place[1] + 1
            if place not in shared:
                shared[place] = Field(space.unique(f"_union_key_{len(shared)}"), data_type, True)
            use[place] = column
        uses.append(use)
    for number, (columns, use) in enumerate(zip(selected, uses, strict=True)):
        columns.append((str(number), Field(branch, "int", False)))
        for place, field in shared.items():
            sql = quoted(use[place]) if place in use else f"CAST(NULL AS {field.data_type})"
            columns.append((sql, field))
    return (branch, *(f.name for f in shared.values()))
