"""Which state tables a node needs.

Two tables a join, one an aggregate and one more for some of its calls (:mod:`.jobs.plan.aggregates`), one or two for
materialized input. Explain, the table catalog and the epoch runner all read this, so they cannot differ.
"""

from __future__ import annotations

import enum
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy, CountedValues, value_column
from relstate_dagster.jobs.plan.aggregates.registry import kinds_of
from relstate_dagster.jobs.plan.latest_rows import latest_rows_table
from relstate_dagster.jobs.plan.nodes import (
    AggCall,
    Aggregate,
    Arrange,
    Join,
    Materialize,
    PlanNode,
    Temporal,
    TopN,
    Window,
)
from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.join_record_state import join_state_schema
from relstate_dagster.state_lib.sql_type import SqlType
from relstate_dagster.state_lib.table_schema import KeyPart, MergeRule, StateColumn, StateKind, StateTableSchema

#: The number of rows of a group, in the first value state of an aggregate: a group whose count is 0 is gone.
GROUP_ROWS = "_group_rows"

#: Columns of the fences of a top-n: how far a fence is, and the value of the first ordering column there.
FENCE = "_fence"
AT = "_at"

#: Letters of a value state's label, which lists calls.
_LABEL = 60


class TableRole(enum.Enum):
    """Role of an aggregate's state table."""

    VALUE_STATE = "accumulators of calls"
    COUNTS = "how often each value of a call occurs"
    INPUT = "input rows, where a call is computed again from them"


def infer_state_tables(node: PlanNode) -> tuple[StateTableSchema, ...]:
    """The state tables of one node, in the order in which it is handed them."""
    if isinstance(node, Join):
        return _join_tables(node)
    if isinstance(node, Aggregate):
        return _aggregate_tables(node)
    if isinstance(node, (Window, TopN, Temporal)):
        return _input_tables(node)
    if isinstance(node, Arrange):
        return (replace(_materialized_input(node.child, node.stream_key or ()), label="rows"),)
    if isinstance(node, Materialize):
        return (_view_table(node),)
    return ()


def _columns(node: PlanNode) -> tuple[StateColumn, ...]:
    return tuple(StateColumn(f.name, f.data_type) for f in node.schema)


def _join_tables(node: Join) -> tuple[StateTableSchema, ...]:
    sides = (
        ("left", node.left, tuple(k.left for k in node.keys), node.left_has_associations, node.left_in_place),
        ("right", node.right, tuple(k.right for k in node.keys), node.right_has_associations, node.right_in_place),
    )
    return tuple(
        join_state_schema(label, _columns(side), key, side.stream_key, with_associations=counted)
        for label, side, key, counted, in_place in sides
        if not in_place
    )


def table_roles(node: Aggregate) -> tuple[tuple[TableRole, tuple[int, ...]], ...]:
    """Roles of an aggregate's state tables, each with the positions of its calls."""
    kinds = kinds_of(node)
    kept = tuple(p for p, kind in enumerate(kinds) if kind.strategy is not CallStrategy.MATERIALIZED_INPUT)
    roles: list[tuple[TableRole, tuple[int, ...]]] = []
    for positions in [kept] if node.shares_value_state or not kept else [(p,) for p in kept]:
        roles.append((TableRole.VALUE_STATE, positions))
        roles += [(TableRole.COUNTS, (p,)) for p in positions if kinds[p].counted is not None]
    if len(kept) < len(kinds):
        roles.append((TableRole.INPUT, ()))
    return tuple(roles)


def accumulator_names(node: Aggregate, positions: tuple[int, ...]) -> dict[int, Mapping[str, str]]:
    """Columns of a value state by call and accumulator.

    They are numbered where several calls have one of the same name.
    """
    kinds = kinds_of(node)
    columns = {p: [a.column for a in kinds[p].accumulators(node.calls[p])] for p in positions}
    number = Counter(column for of_call in columns.values() for column in of_call)
    return {p: {c: c if number[c] == 1 else f"{c}_{p}" for c in of_call} for p, of_call in columns.items()}


def _aggregate_tables(node: Aggregate) -> tuple[StateTableSchema, ...]:
    group = tuple(StateColumn(f.name, f.data_type) for f in node.schema if f.name in node.group)
    kinds = kinds_of(node)
    # The first value state also counts the rows of the group.
    first = (StateColumn(GROUP_ROWS, "bigint"),)
    tables: list[StateTableSchema] = []
    for role, positions in table_roles(node):
        calls = {p: node.calls[p] for p in positions}
        if role is TableRole.INPUT:
            tables.append(_materialized_input(node.child, node.group))
        elif role is TableRole.COUNTS:
            tables += [_counted_values(call, kinds[p].counted, group, node.group) for p, call in calls.items()]
        else:
            names = accumulator_names(node, positions)
            columns = (StateColumn(names[p][a.column], a.data_type) for p in calls for a in kinds[p].accumulators(calls[p]))
            label = textwrap.shorten(", ".join(call.label for call in calls.values()), _LABEL, placeholder=" …")
            every = (*group, *columns, *(() if tables else first))
            tables.append(_value_state(label or "group rows", every, node.group))
    return tuple(tables)


def _value_state(label: str, columns: tuple[StateColumn, ...], group: tuple[str, ...]) -> StateTableSchema:
    return StateTableSchema(
        label,
        StateKind.VALUE_STATE,
        columns,
        tuple(KeyPart(c) for c in group),
        len(group),
        group,
        MergeRule.NEWEST,
    )


def _counted_values(
    call: AggCall, counted: CountedValues | None, group_columns: tuple[StateColumn, ...], group: tuple[str, ...]
) -> StateTableSchema:
    """State table with counts of each value in each group."""
    assert counted is not None
    values = [StateColumn(value_column(n), t) for n, t in enumerate(call.argument_types)]
    return StateTableSchema(
        f"values of {call.label}",
        counted.state,
        (*group_columns, *values),
        (*(KeyPart(c) for c in group), *(KeyPart(v.name, descending=counted.descending) for v in values)),
        len(group),
        group,
        MergeRule.SUM,
    )


def _input_prefix(node: Window | TopN | Temporal) -> tuple[str, ...]:
    """The columns by which a node finds the rows of its input again."""
    if isinstance(node, Window):
        return node.partition
    return node.bound_columns if isinstance(node, Temporal) else ()


def _input_tables(node: Window | TopN | Temporal) -> tuple[StateTableSchema, ...]:
    """Materialized input, and rows of it that are kept apart."""
    whole = _materialized_input(node.child, _input_prefix(node))
    if isinstance(node, Window) and node.latest is not None:
        return whole, latest_rows_table(node.latest, whole)
    return _top_n_tables(node, whole) if isinstance(node, TopN) and node.keeps_first else (whole,)


def _top_n_tables(node: TopN, whole: StateTableSchema) -> tuple[StateTableSchema, ...]:
    """State of a top-n: sorted input, first rows, and fences if possible.

    The first ordering column has to allow fences.
    """
    ordered = {key.column: KeyPart(key.column, key.descending, key.nulls_last) for key in node.order}
    if any(_has_no_order(node.field_named(name).type) for name in ordered):
        return whole, replace(whole, label="first")
    rest = [part for part in whole.storage_key if part.column not in ordered]
    whole = replace(whole, storage_key=(*ordered.values(), *rest))
    of_first = node.field_named(node.order[0].column) if node.order else None
    # Nested values have no literals, and statistics of files may leave out NaN.
    if of_first is None or of_first.type.is_nested or of_first.type.has_floats:
        return whole, replace(whole, label="first")
    fences = StateTableSchema(
        "fences",
        StateKind.VALUE_STATE,
        (StateColumn(FENCE, "int"), StateColumn(AT, of_first.data_type)),
        (KeyPart(FENCE),),
        0,
        (),
        MergeRule.NEWEST,
    )
    return whole, replace(whole, label="first"), fences


def _has_no_order(of_key: SqlType) -> bool:
    """Whether a type cannot be in a key."""
    return of_key.has_maps or of_key.has_variants or of_key.has_collations


def _materialized_input(child: PlanNode, prefix: tuple[str, ...]) -> StateTableSchema:
    key = (*prefix, *(c for c in _row_key(child) if c not in prefix))
    return StateTableSchema(
        "input",
        StateKind.MATERIALIZED_INPUT,
        _columns(child),
        tuple(KeyPart(c) for c in key),
        len(prefix),
        prefix,
        MergeRule.SUM,
    )


def _row_key(node: PlanNode) -> tuple[str, ...]:
    """Key of a node's stored rows: its stream key, or all columns but maps."""
    if node.stream_key is not None:
        return node.stream_key
    return tuple(f.name for f in node.schema if not f.type.has_maps)


def _view_table(node: Materialize) -> StateTableSchema:
    ordered = {k.column: KeyPart(k.column, k.descending, k.nulls_last) for k in node.order}
    stream_key = _row_key(node)
    parts = (*ordered.values(), *(KeyPart(c) for c in stream_key if c not in ordered))
    distribution = (ROW_ID,) if node.stream_key == (ROW_ID,) else stream_key
    return StateTableSchema(
        "mv",
        StateKind.MATERIALIZED_VIEW,
        _columns(node),
        parts,
        len(ordered),
        distribution,
        MergeRule.SUM,
    )
