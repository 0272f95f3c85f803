"""Rows of a test as SQL, which Spark casts to their columns' types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import types as T

from relstate_dagster.jobs.declare.view_tests import Row, Written
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.sql_text import quoted, text_literal


def columns_named(schema: T.StructType, rows: Iterable[Row], table: str) -> list[str]:
    """Columns that rows name, as the table calls them and in its order.

    Raises
    ------
    DeclarationError : one is no column of the table.
    """
    known = {field.name.lower(): field.name for field in schema.fields}
    named = {name: None for row in rows for name in row}
    unknown = [name for name in named if name.lower() not in known]
    if unknown:
        raise DeclarationError(f"{table} has no column {', '.join(unknown)}; there are {', '.join(known.values())}")
    wanted = {name.lower() for name in named}
    return [name for lower, name in known.items() if lower in wanted]


def values_query(schema: T.StructType, rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A query that gives rows; missing values are NULL."""
    lines = [f"({', '.join(literal(_of(row, name), schema[name].dataType) for name in columns)})" for row in rows]
    if not lines:
        nulls = ", ".join(f"CAST(NULL AS {schema[name].dataType.simpleString()}) AS {quoted(name)}" for name in columns)
        return f"SELECT {nulls} WHERE false"
    return f"SELECT * FROM VALUES {', '.join(lines)} AS _({', '.join(map(quoted, columns))})"


def condition(schema: T.StructType, row: Row, columns: Sequence[str]) -> str:
    """Whether a row of the table has the values that a row is written with."""
    return " AND ".join(f"{quoted(name)} <=> {literal(_of(row, name), schema[name].dataType)}" for name in columns)


def literal(value: Written, data_type: T.DataType) -> str:
    """One value, cast by Spark: an error where it cannot be cast."""
    wanted = data_type.simpleString()
    if value is None:
        return f"CAST(NULL AS {wanted})"
    if isinstance(value, str):
        return _scalar(value, data_type)
    if isinstance(value, list) and isinstance(data_type, T.ArrayType):
        return f"CAST(array({', '.join(literal(part, data_type.elementType) for part in value)}) AS {wanted})"
    if isinstance(value, dict) and isinstance(data_type, T.MapType):
        pairs = [(literal(key, data_type.keyType), literal(part, data_type.valueType)) for key, part in value.items()]
        return f"CAST(map({', '.join(f'{key}, {part}' for key, part in pairs)}) AS {wanted})"
    if isinstance(value, dict) and isinstance(data_type, T.StructType):
        columns_named(data_type, [value], "the struct")
        parts = [f"{text_literal(f.name)}, {literal(_of(value, f.name), f.dataType)}" for f in data_type.fields]
        return f"CAST(named_struct({', '.join(parts)}) AS {wanted})"
    kind = "a list" if isinstance(value, list) else "a mapping"
    raise DeclarationError(f"{kind} is no value of type {wanted}: {value}")


def _scalar(text: str, data_type: T.DataType) -> str:
    if isinstance(data_type, T.VariantType):
        return f"parse_json({text_literal(text)})"
    if isinstance(data_type, T.ArrayType | T.MapType | T.StructType):
        return f"from_json({text_literal(text)}, {text_literal(data_type.simpleString())}, map('mode', 'FAILFAST'))"
    return f"CAST({text_literal(text)} AS {data_type.simpleString()})"


def _of(row: Row, column: str) -> Written:
    return next((value for name, value in row.items() if name.lower() == column.lower()), None)
