"""What the encoding tests share: values of each key type, and the order Spark gives them."""

from __future__ import annotations

import datetime as dt
import functools
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as T

from relstate_dagster.state_lib.row_encoding import EncodedPart, parse_type

UTC = dt.timezone.utc


def values_of(data_type: T.DataType) -> st.SearchStrategy[Any]:
    """NULL or any value of a type, the awkward ones often."""
    return st.none() | _present(data_type)


def _present(data_type: T.DataType) -> st.SearchStrategy[Any]:
    bits = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}.get(type(data_type))
    if bits:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return st.sampled_from([low, -1, 0, 1, high]) | st.integers(low, high)
    if isinstance(data_type, T.DecimalType):
        limit = 10**data_type.precision - 1
        unscaled = st.sampled_from([-limit, -1, 0, 1, limit]) | st.integers(-limit, limit)
        return unscaled.map(lambda n: Decimal((n < 0, tuple(int(d) for d in str(abs(n))), -data_type.scale)))
    if isinstance(data_type, T.StructType):
        return st.tuples(*(values_of(field.dataType) for field in data_type.fields))
    if isinstance(data_type, T.ArrayType):
        return st.lists(values_of(data_type.elementType), max_size=3)
    return _ATOMS[type(data_type)]


_TEXT = st.sampled_from(["", "\0", "a", "a\0", "a\0\0b", "a\1", "\uffff", "\U0001f600", "é"])
_ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)

_ATOMS: dict[type[T.DataType], st.SearchStrategy[Any]] = {
    T.FloatType: st.sampled_from([0.0, -0.0, math.nan, math.inf, 2.0**-149, 2.0**-126]) | st.floats(width=32),
    T.DoubleType: st.sampled_from([0.0, -0.0, math.nan, -math.inf, 5e-324, 2.0**-1022]) | st.floats(),
    T.BooleanType: st.booleans(),
    T.StringType: _TEXT | _ANY_TEXT,
    T.BinaryType: st.sampled_from([b"", b"\0", b"\xff", b"\0\xff"]) | st.binary(max_size=4),
    T.DateType: st.dates(),
    T.TimestampType: st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29), timezones=st.just(UTC)),
    T.TimestampNTZType: st.datetimes(),
    T.DayTimeIntervalType: st.timedeltas(dt.timedelta(days=-99_999_999), dt.timedelta(days=99_999_999)),
    T.YearMonthIntervalType: st.integers(-120_000, 120_000),
}

KEY_TYPES = [
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "decimal(5,2)",
    "decimal(18,18)",
    "decimal(19,0)",
    "decimal(25,4)",
    "decimal(38,10)",
    "decimal(38,38)",
    "float",
    "double",
    "boolean",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "interval day to second",
    "interval year to month",
    "struct<a:int,b:string>",
    "array<double>",
    "array<struct<a:array<string>,b:decimal(20,3)>>",
]


def compare(one: Any, other: Any, data_type: T.DataType) -> int:
    """Spark's order of two values, NULLs first; written from its documentation, not from the encoding."""
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(data_type, T.StructType):
        fields = zip(one, other, data_type.fields, strict=True)
        return next((c for a, b, field in fields if (c := compare(a, b, field.dataType))), 0)
    if isinstance(data_type, T.ArrayType):
        pairs = zip(one, other, strict=False)
        by_element = next((c for a, b in pairs if (c := compare(a, b, data_type.elementType))), 0)
        return by_element or (len(one) > len(other)) - (len(one) < len(other))
    if isinstance(data_type, T.StringType):
        one, other = one.encode(), other.encode()
    if isinstance(one, float) and (math.isnan(one) or math.isnan(other)):
        return math.isnan(one) - math.isnan(other)
    return (one > other) - (one < other)


def compare_rows(one: Sequence[Any], other: Sequence[Any], parts: Sequence[EncodedPart]) -> int:
    """The order of two rows, by each part's direction and place of NULLs."""
    for a, b, part in zip(one, other, parts, strict=True):
        if a is None or b is None:
            nulls = (a is not None) - (b is not None)
            result = -nulls if part.nulls_last else nulls
        else:
            ascending = compare(a, b, part.data_type)
            result = -ascending if part.descending else ascending
        if result:
            return result
    return 0


row_order = functools.cmp_to_key


@st.composite
def parts_and_rows(draw: st.DrawFn, rows: int = 2) -> tuple[tuple[EncodedPart, ...], list[tuple[Any, ...]]]:
    """A key of one to three columns of any types and orders, and rows of it."""
    types = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=3))
    parts = tuple(EncodedPart(parse_type(t), draw(st.booleans()), draw(st.booleans())) for t in types)
    row = st.tuples(*(values_of(part.data_type) for part in parts))
    return parts, [draw(row) for _ in range(rows)]
