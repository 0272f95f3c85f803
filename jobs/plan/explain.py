"""Plans as text: one line a node, then its state tables with keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy
from relstate_dagster.jobs.plan.aggregates.registry import kinds_of
from relstate_dagster.jobs.plan.distribution import Distribution, distribution, exchanges
from relstate_dagster.jobs.plan.nodes import (
    TODAY,
    Aggregate,
    Arrange,
    Expand,
    Filter,
    FullQuery,
    Generate,
    Join,
    Materialize,
    PlanNode,
    Project,
    Scan,
    TemporalFilter,
    TemporalProject,
    TopN,
    UnionAll,
    Values,
    Window,
    walk,
)
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.state_lib.table_schema import KeyPart, StateTableDesc, StateTableSchema

#: Cost of an epoch at a node, in the change Δ and the state it touches.
_COSTS = {
    Scan: "|Δ|",
    Values: "0",
    Filter: "|Δ|",
    TemporalFilter: "|Δ| + rows that time moves across",
    TemporalProject: "|Δ| + rows that time moves across",
    Project: "|Δ|",
    UnionAll: "|Δ|",
    Arrange: "|Δ|",
    Expand: "|Δ| × projections",
    Generate: "|Δ| × elements",
    Join: "|Δ| + matches",
    Window: "rows of affected partitions",
    TopN: "rows of the input",
    FullQuery: "the query in full",
    Materialize: "|Δ|",
}


#: State tables of nodes, with their ids.
NodeTables: TypeAlias = Mapping[PlanNode, Sequence[StateTableDesc]]


def explain_plan(root: PlanNode, tables: NodeTables | None = None) -> str:
    """The plan from its root down, with exchanges, then every state table.

    Table ids where they are allocated.
    """
    lines: list[str] = []
    _describe(root, 0, lines, set())
    described = _table_lines(root, tables)
    if described:
        lines += ["", "state tables:", *described]
    return "\n".join(lines)


def cost(node: PlanNode) -> str:
    """Cost of an epoch at a node, in Δ and in the state it touches."""
    if isinstance(node, TopN) and node.keeps_first:
        return "|Δ|, and the next rows of the input when the first ones run out"
    if isinstance(node, Window) and node.latest is not None:
        return "last rows of affected partitions, or all rows of those that change before"
    if isinstance(node, Window) and node.reach is not None and node.reach.text:
        return f"{_COSTS[Window]}, results of {node.reach.text}"
    if isinstance(node, Aggregate):
        strategies = {kind.strategy for kind in kinds_of(node)}
        return ", and ".join(["|affected groups|", *(s.cost for s in CallStrategy if s.cost and s in strategies)])
    if isinstance(node, Materialize) and node.is_of_a_day:
        return f"{_COSTS[Materialize]}, and all rows when the date changes"
    return _COSTS[type(node)]


def _describe(node: PlanNode, depth: int, lines: list[str], seen: set[PlanNode]) -> None:
    key = "none" if node.stream_key is None else f"({', '.join(node.stream_key)})"
    facts = [f"stream key {key}", *(["append-only"] if node.append_only else [])]
    facts += [f"distribution {distribution(node).text}", f"cost {cost(node)}"]
    again = " (as above, maintained once)" if node in seen and node.children else ""
    lines.append(f"{'  ' * depth}{headline(node)}  [{'; '.join(facts)}]{again}")
    if again:
        return
    seen.add(node)
    for child, exchange in zip(node.children, exchanges(node), strict=True):
        if exchange is not None:
            lines.append(f"{'  ' * (depth + 1)}Exchange {exchange.text}")
        _describe(child, depth + (1 if exchange is None else 2), lines, seen)


def headline(node: PlanNode) -> str:
    """The node with its arguments, in one line."""
    return _arguments(node).replace(TODAY, "current_date()")


def _arguments(node: PlanNode) -> str:  # noqa: C901, PLR0911, PLR0912 - one line a node kind
    match node:
        case Scan():
            return f"Scan {node.relation}"
        case Values():
            return f"Values ({len(node.rows)} rows)"
        case Filter():
            return f"Filter {node.condition}"
        case TemporalFilter():
            return "TemporalFilter " + " AND ".join(bound.sql_at("now()") for bound in node.bounds)
        case TemporalProject():
            named = zip(node.bounds, node.flags, strict=True)
            return "TemporalProject " + ", ".join(f"{bound.sql_at('now()')} AS {flag.name}" for bound, flag in named)
        case Project():
            return "Project " + ", ".join(
                e.output.name if e.is_column else f"{e.sql} AS {e.output.name}" for e in node.expressions
            )
        case UnionAll():
            return f"UnionAll ({len(node.inputs)} inputs)"
        case Arrange():
            return f"Arrange by ({', '.join(node.stream_key or ())}) once looked up at random"
        case Expand():
            return f"Expand ({len(node.projections)} projections)"
        case Generate():
            return f"Generate {node.generator}"
        case Join():
            on = ", ".join(k.sql.replace("`", "") for k in node.keys) or "every pair"
            residual = f" where {node.residual}" if node.residual else ""
            sides = [side for side, there in (("left", node.left_in_place), ("right", node.right_in_place)) if there]
            in_place = f", {' and '.join(sides)} in place" if sides else ""
            return f"Join {node.join_type} on {on}{residual}{in_place}"
        case Aggregate():
            kinds = zip(node.calls, kinds_of(node), strict=True)
            calls = ", ".join(f"{call.label} by {kind.strategy.label}" for call, kind in kinds)
            return f"Aggregate by ({', '.join(node.group)})" + (f": {calls}" if calls else ": distinct")
        case Window():
            return "Window " + ", ".join(e.sql for e in node.expressions)
        case TopN():
            order = ", ".join(f"{k.column}{' desc' if k.descending else ''}" for k in node.order)
            return f"TopN limit {node.limit} offset {node.offset} by ({order})"
        case FullQuery():
            return f"FullQuery over {', '.join(node.reads) or 'nothing'}"
        case Materialize():
            order = f" order by {', '.join(k.column for k in node.order)}" if node.order else ""
            return "Materialize " + ", ".join(o.name for o in node.output) + order
        case _:
            return type(node).__name__


def state_of(node: PlanNode, tables: NodeTables | None) -> list[tuple[StateTableSchema, StateTableDesc | None]]:
    """State tables of a node, stored ones, or inferred ones without ids."""
    if tables is None:
        return [(schema, None) for schema in infer_state_tables(node)]
    return [(desc.schema, desc) for desc in tables[node]]


def _table_lines(root: PlanNode, tables: NodeTables | None) -> list[str]:
    lines = []
    for node in walk(root):
        for schema, desc in state_of(node, tables):
            number = f"{desc.table_id}" if desc is not None else "?"
            vnodes = f", vnodes {desc.vnode_count}" if desc is not None and desc.vnode_count > 1 else ""
            key = ", ".join(_key_part(p) for p in schema.storage_key) or "the empty row"
            split = f" prefix {schema.prefix_length}" if schema.prefix_length else ""
            lines.append(
                f"  {number}: {type(node).__name__} {schema.label}: {schema.kind.value}, key {key}{split}, "
                f"distribution {Distribution(schema.distribution_key).text}, {schema.merge.value}{vnodes}"
            )
    return lines


def _key_part(part: KeyPart) -> str:
    order = " desc" if part.descending else ""
    nulls = " nulls last" if part.nulls_last != part.descending else ""
    return f"{part.column}{order}{nulls}"
