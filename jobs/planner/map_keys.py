"""Maps in keys, as their entries, sorted: two maps are equal where these are.

A map has no order and is in no storage key. A view of rows without a stream key is stored and published by their values,
and windows and limits sort by these. So the entries of maps are in hidden columns. Groups by a map are groups by its
entries, and above them the map is made of these again: as Spark has it, in their order.
"""

from __future__ import annotations

from pyspark.sql import types as T

from relstate_dagster.jobs.plan.nodes import Field, NamedExpr, PlanNode
from relstate_dagster.jobs.planner.lowered import NameSpace, with_columns
from relstate_dagster.state_lib.row_encoding import contains_map, parse_type, to_ddl
from relstate_dagster.state_lib.sql_text import quoted, text_literal


def with_map_keys(node: PlanNode) -> PlanNode:
    """A node with sorted map entries as more columns.

    The same node if it has a stream key, or no maps.
    """
    maps = [f for f in node.schema if f.type.has_maps]
    if node.stream_key is not None or not maps:
        return node
    space = NameSpace(node.column_names)
    extra = []
    for f in maps:
        data_type = parse_type(f.data_type)
        output = Field(space.unique(f"_entries_of_{f.name}"), entries_type(f.data_type), f.nullable)
        extra.append(NamedExpr(with_sorted_maps(quoted(f.name), data_type), output))
    return with_columns(node, extra)


def with_sorted_maps(value: str, data_type: T.DataType, depth: int = 0) -> str:
    """A value with its maps as sorted arrays of entries: SQL text. NULL stays NULL."""
    if not contains_map(data_type):
        return value
    item = f"x{depth}"
    if isinstance(data_type, T.ArrayType):
        return f"transform({value}, {item} -> {with_sorted_maps(item, data_type.elementType, depth + 1)})"
    if isinstance(data_type, T.MapType):
        parts = (
            with_sorted_maps(f"{item}.`key`", data_type.keyType, depth + 1),
            with_sorted_maps(f"{item}.`value`", data_type.valueType, depth + 1),
        )
        entries = f"map_entries({value})"
        return f"array_sort(transform({entries}, {item} -> named_struct('key', {parts[0]}, 'value', {parts[1]})))"
    assert isinstance(data_type, T.StructType)
    fields = ", ".join(
        f"'f{n}', {with_sorted_maps(f'{value}.{quoted(f.name)}', f.dataType, depth)}" for n, f in enumerate(data_type.fields)
    )
    return f"IF({value} IS NULL, NULL, named_struct({fields}))"


def with_maps_again(value: str, data_type: T.DataType, depth: int = 0) -> str:
    """A value of that type out of what :func:`with_sorted_maps` has made of it: SQL text."""
    if not contains_map(data_type):
        return value
    item = f"x{depth}"
    if isinstance(data_type, T.ArrayType):
        return f"transform({value}, {item} -> {with_maps_again(item, data_type.elementType, depth + 1)})"
    if isinstance(data_type, T.MapType):
        parts = (
            with_maps_again(f"{item}.`key`", data_type.keyType, depth + 1),
            with_maps_again(f"{item}.`value`", data_type.valueType, depth + 1),
        )
        entries = f"transform({value}, {item} -> named_struct('key', {parts[0]}, 'value', {parts[1]}))"
        return f"map_from_entries({entries if contains_map(data_type.valueType) else value})"
    assert isinstance(data_type, T.StructType)
    fields = ", ".join(
        f"{text_literal(f.name)}, {with_maps_again(f'{value}.`f{n}`', f.dataType, depth)}"
        for n, f in enumerate(data_type.fields)
    )
    return f"IF({value} IS NULL, NULL, named_struct({fields}))"


def entries_type(data_type: str) -> str:
    """The DDL type of :func:`with_sorted_maps`, by that of the value."""
    return to_ddl(_sorted_type(parse_type(data_type)))


def _sorted_type(data_type: T.DataType) -> T.DataType:
    """The type of :func:`with_sorted_maps`."""
    if not contains_map(data_type):
        return data_type
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(_sorted_type(data_type.elementType))
    if isinstance(data_type, T.MapType):
        entry = [("key", data_type.keyType), ("value", data_type.valueType)]
        return T.ArrayType(T.StructType([T.StructField(name, _sorted_type(t)) for name, t in entry]))
    assert isinstance(data_type, T.StructType)
    return T.StructType([T.StructField(f"f{n}", _sorted_type(f.dataType)) for n, f in enumerate(data_type.fields)])
