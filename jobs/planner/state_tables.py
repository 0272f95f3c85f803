"""Which state tables a node needs: the one place that routes a node, or an aggregate call, to its state.

Two tables a join, one or two a call of an aggregate, one for materialized input. Explain, the table catalog and the epoch
runner all read this, so they cannot differ.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from relstate_dagster.jobs.planner.decimal_sums import decimal_parts, decimal_sum
from relstate_dagster.jobs.planner.nodes import (
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
from relstate_dagster.state_lib.row_encoding import contains_map
from relstate_dagster.state_lib.table_schema import KeyPart, MergeRule, StateColumn, StateKind, StateTableSchema

#: Columns of aggregate state, next to the group columns.
COUNT = "_count"
SUM = "_sum"
#: The sum that a mean of decimals divides. Its name differs from that of earlier versions, which rounded means otherwise: views
#: with such means have another state now, and are rebuilt.
DIVIDEND = "_dividend"
#: The part of a sum of long decimals that is above the low one (:mod:`.jobs.planner.decimal_sums`).
HIGH = "_sum_high"
EXTREME = "_extreme"
FIRST = "_first"
COMPLETE = "_complete"
GROUP_ROWS = "_group_rows"

#: Columns of the fences of a top-n: how far a fence is, and the value of the first ordering column there.
FENCE = "_fence"
AT = "_at"
#: Values that no fence can be at: nested ones have no literals, and statistics of files may leave out NaN.
_NO_FENCE = ("array<", "struct<", "float", "double")

_INTEGRAL = {"tinyint", "smallint", "int", "bigint"}


class CallStrategy(enum.Enum):
    """How an aggregate call is kept up to date."""

    VALUE = "value state"
    EXTREME = "extreme state"
    DISTINCT = "distinct state"
    MATERIALIZED_INPUT = "materialized input"


def is_exact(data_type: str) -> bool:
    """Whether sums of the type are exact in any order (integers and decimals, not floating point)."""
    return data_type in _INTEGRAL or decimal_parts(data_type) is not None


def call_strategy(call: AggCall, *, append_only: bool) -> CallStrategy:
    """The strategy of a call over an input that is append-only or not."""
    if call.function in ("min", "max") and len(call.arguments) == 1:
        return CallStrategy.VALUE if append_only else CallStrategy.EXTREME
    if call.function == "count":
        return CallStrategy.DISTINCT if call.distinct else CallStrategy.VALUE
    if call.function in ("sum", "avg") and len(call.arguments) == 1 and _sum_can_be_kept(call.argument_types[0]):
        return CallStrategy.DISTINCT if call.distinct else CallStrategy.VALUE
    return CallStrategy.MATERIALIZED_INPUT


def _sum_can_be_kept(data_type: str) -> bool:
    decimals = decimal_sum(data_type)
    return decimals.can_be_kept if decimals else is_exact(data_type)


def sum_type(argument_type: str) -> str:
    """The type of a running sum that overflows no earlier than its result.

    Of long decimals it is that of the low part; the high one is a BIGINT.
    """
    decimals = decimal_sum(argument_type)
    if decimals:
        return decimals.kept_as
    return "decimal(38,0)" if argument_type == "bigint" else "bigint"


def infer_state_tables(node: PlanNode) -> tuple[StateTableSchema, ...]:
    """The state tables of one node, in the order in which it is handed them."""
    if isinstance(node, Join):
        return _join_tables(node)
    if isinstance(node, Aggregate):
        return _aggregate_tables(node)
    if isinstance(node, (Window, TopN, Temporal)):
        whole = _materialized_input(node.child, _input_prefix(node))
        return _top_n_tables(node, whole) if isinstance(node, TopN) and node.keeps_first else (whole,)
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


def _aggregate_tables(node: Aggregate) -> tuple[StateTableSchema, ...]:
    group = tuple(StateColumn(f.name, f.data_type) for f in node.schema if f.name in node.group)
    strategies = [call_strategy(c, append_only=node.child.append_only) for c in node.calls]
    tables: list[StateTableSchema] = []
    for call, strategy in zip(node.calls, strategies, strict=True):
        if strategy is CallStrategy.MATERIALIZED_INPUT:
            continue
        columns = [*group, *_accumulators(call, strategy)]
        if not tables:
            # The first value state also counts the rows of the group: a group whose count is 0 is gone.
            columns.append(StateColumn(GROUP_ROWS, "bigint"))
        tables.append(_value_state(call.label, tuple(columns), node.group))
        if counts_values(strategy):
            tables.append(_counted_values(call, strategy, group, node.group))
    if not tables:
        tables.append(_value_state("group rows", (*group, StateColumn(GROUP_ROWS, "bigint")), node.group))
    if CallStrategy.MATERIALIZED_INPUT in strategies:
        tables.append(_materialized_input(node.child, node.group))
    return tuple(tables)


def counts_values(strategy: CallStrategy) -> bool:
    """Whether a call has a second table, of how often each value occurs, next to its value state."""
    return strategy in (CallStrategy.EXTREME, CallStrategy.DISTINCT)


def _accumulators(call: AggCall, strategy: CallStrategy) -> list[StateColumn]:
    if strategy is CallStrategy.EXTREME:
        counted = f"array<struct<`value`: {first_value_type(call.argument_types[0])}, `count`: bigint>>"
        return [StateColumn(FIRST, counted), StateColumn(COMPLETE, "boolean")]
    if call.function == "count":
        return [StateColumn(COUNT, "bigint")]
    if call.function in ("min", "max"):
        return [StateColumn(EXTREME, call.argument_types[0])]
    decimals = decimal_sum(call.argument_types[0])
    low = StateColumn(sum_column(call), sum_type(call.argument_types[0]))
    high = [StateColumn(HIGH, "bigint")] if decimals and decimals.has_high_part else []
    return [low, *high, StateColumn(COUNT, "bigint")]


def sum_column(call: AggCall) -> str:
    """The state column of a sum, or of its low part."""
    return DIVIDEND if call.function == "avg" and decimal_sum(call.argument_types[0]) else SUM


def first_value_type(data_type: str) -> str:
    """The type in which a value is kept within an array: Delta stores no intervals there, and nothing of type VOID."""
    if data_type == "void":
        return "boolean"
    return "bigint" if data_type.startswith("interval") else data_type


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
    call: AggCall, strategy: CallStrategy, group_columns: tuple[StateColumn, ...], group: tuple[str, ...]
) -> StateTableSchema:
    """How often each value occurs in each group: for extremes sorted so that the extreme comes first."""
    extreme = strategy is CallStrategy.EXTREME
    values = [StateColumn(value_column(n), t) for n, t in enumerate(call.argument_types)]
    return StateTableSchema(
        f"values of {call.label}",
        StateKind.EXTREME_STATE if extreme else StateKind.DISTINCT_STATE,
        (*group_columns, *values),
        (*(KeyPart(c) for c in group), *(KeyPart(v.name, descending=call.function == "max") for v in values)),
        len(group),
        group,
        MergeRule.SUM,
    )


def value_column(position: int) -> str:
    """The column of an extreme or distinct state that holds an argument of its call."""
    return f"_value_{position}"


def _input_prefix(node: Window | TopN | Temporal) -> tuple[str, ...]:
    """The columns by which a node finds the rows of its input again."""
    if isinstance(node, Window):
        return node.partition
    return node.bound_columns if isinstance(node, Temporal) else ()


def _top_n_tables(node: TopN, whole: StateTableSchema) -> tuple[StateTableSchema, ...]:
    """The input, sorted as the query asks; its first rows; and, where the first ordering column allows them, the fences."""
    ordered = {key.column: KeyPart(key.column, key.descending, key.nulls_last) for key in node.order}
    if any(_has_no_order(node.field_named(name).data_type) for name in ordered):
        return whole, replace(whole, label="first")
    rest = [part for part in whole.storage_key if part.column not in ordered]
    whole = replace(whole, storage_key=(*ordered.values(), *rest))
    of_first = node.field_named(node.order[0].column).data_type if node.order else ""
    if not node.order or any(word in of_first for word in _NO_FENCE):
        return whole, replace(whole, label="first")
    fences = StateTableSchema(
        "fences",
        StateKind.VALUE_STATE,
        (StateColumn(FENCE, "int"), StateColumn(AT, of_first)),
        (KeyPart(FENCE),),
        0,
        (),
        MergeRule.NEWEST,
    )
    return whole, replace(whole, label="first"), fences


def _has_no_order(data_type: str) -> bool:
    """Whether a type cannot be in a key."""
    return contains_map(data_type) or any(word in data_type.lower() for word in ("variant", "collate"))


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
    """What the rows of a node are kept by: its stream key, or all columns but maps, which have no order."""
    if node.stream_key is not None:
        return node.stream_key
    return tuple(f.name for f in node.schema if not contains_map(f.data_type))


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
