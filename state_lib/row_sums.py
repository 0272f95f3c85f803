"""Equal rows summed. Rows are equal if no query can tell them apart.

Spark's GROUP BY finds more rows equal than that. It makes 0.0 of -0.0, also within arrays and structs, so a summed row is
not the row that was read. And it takes no VARIANT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.columns import group_by
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.row_encoding import parse_type, parts_of, to_ddl
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.table_schema import StateColumn

_ZEROS: Final = "_relstate_zeros"
_VARIANT: Final = "_relstate_variant_"


class Typed(Protocol):
    """A column: its name, and its type as DDL text."""

    @property
    def name(self) -> str:
        """The column's name."""

    @property
    def data_type(self) -> str:
        """The column's type as DDL text."""


def columns_of_schema(schema: T.StructType) -> list[StateColumn]:
    """The columns of a frame."""
    return [StateColumn(field.name, to_ddl(field.dataType)) for field in schema.fields]


def sum_rows(rows: DataFrame, columns: Sequence[Typed], totals: Mapping[str, Column]) -> DataFrame:
    """Group equal rows.

    Parameters
    ----------
    rows : has the columns, and what the totals are of.
    columns : the columns of a row.
    totals : aggregates by their names.

    Returns
    -------
    The columns, one row for equal ones, and the totals.
    """
    types = {column.name: parse_type(column.data_type) for column in columns}
    variants = [name for name, data_type in types.items() if _contains(data_type, (T.VariantType,))]
    named = [total.alias(name) for name, total in totals.items()]
    signs = zero_signs(columns)
    if signs is None and not variants:
        return group_by(rows, [quoted(name) for name in types]).agg(*named)
    floats = [name for name, data_type in types.items() if _has_floats(data_type)]
    picked = dict.fromkeys([*floats, *variants])
    keys = [F.col(quoted(name)) for name in types if name not in variants]
    keys += [F.expr(_variant_text(quoted(name), types[name])).alias(f"{_VARIANT}{n}") for n, name in enumerate(variants)]
    if signs is not None:
        keys.append(F.expr(signs).alias(_ZEROS))
    firsts = [F.first(quoted(name)).alias(f"_first_{n}") for n, name in enumerate(picked)]
    grouped = rows.groupBy(*keys).agg(*named, *firsts)
    found = {name: f"_first_{n} AS {quoted(name)}" for n, name in enumerate(picked)}
    return select(grouped, [*(found.get(name, quoted(name)) for name in types), *map(quoted, totals)])


def consolidate(df: DataFrame, columns: Sequence[Typed]) -> DataFrame:
    """Equal rows summed, zeros dropped: what makes a bag of weighted rows a Z-set."""
    return sum_rows(df, columns, {WEIGHT: F.sum(WEIGHT)}).where(f"{WEIGHT} != 0")


def zero_signs(columns: Sequence[Typed]) -> str | None:
    """SQL for the signs of zeros in a row; empty if none is negative.

    ``None`` where columns of these types are equal only if they are the same.
    """
    floats = {quoted(c.name): parse_type(c.data_type) for c in columns if _has_floats(parse_type(c.data_type))}
    if not floats:
        return None
    any_below = " OR ".join(_has_negative_zero(value, data_type) for value, data_type in floats.items())
    texts = ", ".join(f"coalesce(CAST({value} AS STRING), '')" for value in floats)
    return f"IF({any_below}, concat_ws('|', {texts}), '')"


def same_value(one: str, other: str, data_type: str) -> str:
    """SQL for ``<=>`` that also compares the signs of zeros."""
    parsed = parse_type(data_type)
    if not _has_floats(parsed):
        return f"({one}) <=> ({other})"
    signs = (f"IF({_has_negative_zero(f'({v})', parsed)}, CAST({v} AS STRING), '')" for v in (one, other))
    return f"({one}) <=> ({other}) AND {' <=> '.join(signs)}"


def _has_negative_zero(value: str, data_type: T.DataType, depth: int = 0) -> str:
    item = f"z{depth}"
    match data_type:
        case T.FloatType() | T.DoubleType():
            # Only zeros become text.
            return f"coalesce({value} = 0 AND CAST({value} AS STRING) = '-0.0', false)"
        case T.ArrayType():
            return f"coalesce(exists({value}, {item} -> {_has_negative_zero(item, data_type.elementType, depth + 1)}), false)"
        case T.MapType():
            sides = {"map_keys": data_type.keyType, "map_values": data_type.valueType}
            found = [(side, of_side) for side, of_side in sides.items() if _has_floats(of_side)]
            tests = (f"exists({side}({value}), {item} -> {_has_negative_zero(item, t, depth + 1)})" for side, t in found)
            return f"coalesce({' OR '.join(tests)}, false)"
        case T.StructType():
            fields = [field for field in data_type.fields if _has_floats(field.dataType)]
            return " OR ".join(_has_negative_zero(f"{value}.{quoted(f.name)}", f.dataType, depth) for f in fields)
    raise AssertionError(f"{data_type} has no floating-point numbers")


def _variant_text(value: str, data_type: T.DataType) -> str:
    """SQL for a text that identifies a value with VARIANT in it."""
    if isinstance(data_type, T.VariantType):
        return f"concat(schema_of_variant({value}), ' ', to_json({value}))"
    return f"to_json(named_struct('value', {value}), map('ignoreNullFields', 'false'))"


def _has_floats(data_type: T.DataType) -> bool:
    return _contains(data_type, (T.FloatType, T.DoubleType))


def _contains(data_type: T.DataType, kinds: tuple[type[T.DataType], ...]) -> bool:
    return any(isinstance(part, kinds) for part in parts_of(data_type))
