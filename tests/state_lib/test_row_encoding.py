"""The pure-Python row encoding: golden bytes, order, and reading back. No Spark."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from key_values import UTC, compare_rows, parts_and_rows

from relstate_dagster.state_lib.errors import PlanError, StateError
from relstate_dagster.state_lib.row_encoding import EncodedPart, decode_row, encode_row, encoded_parts, normalise, parse_type
from relstate_dagster.state_lib.table_schema import KeyPart, StateColumn

GOLDEN: list[tuple[str, Any, str]] = [
    ("tinyint", -128, "01 00"),
    ("tinyint", 127, "01 ff"),
    ("smallint", 0, "01 8000"),
    ("int", 1, "01 80000001"),
    ("int", -1, "01 7fffffff"),
    ("bigint", 1, "02 8000000000000001"),
    ("bigint", -1, "01 ffffffffffffffff"),
    ("bigint", -(2**63), "01 8000000000000000"),
    ("decimal(15,2)", Decimal("12.34"), "02 80000000000004d2"),
    ("decimal(19,1)", Decimal("12.3"), "02 00000000000000000123"),
    ("decimal(19,1)", Decimal("-12.3"), "01 99999999999999999876"),
    ("float", 1.0, "01 bf800000"),
    ("float", -0.0, "01 80000000"),
    ("double", 1.0, "02 bff0000000000000"),
    ("double", -1.0, "01 c00fffffffffffff"),
    ("double", math.nan, "02 fff8000000000000"),
    ("boolean", True, "01 01"),
    ("string", "", "01 0000"),
    ("string", "a\0b", "01 61 0001 62 0000"),
    ("string", "😀", "01 f09f9880 0000"),
    ("binary", b"\xff\x00", "01 ff 0001 0000"),
    ("date", dt.date(1970, 1, 2), "01 80000001"),
    ("timestamp", dt.datetime(1970, 1, 1, tzinfo=UTC), "02 8000000000000000"),
    ("timestamp_ntz", dt.datetime(1969, 12, 31, 23, 59, 59, 999999), "01 ffffffffffffffff"),
    ("struct<a:tinyint,b:string>", (1, None), "01 0181 00"),
    ("array<tinyint>", [1, None], "01 01 0181 01 00 00"),
    ("array<tinyint>", [], "01 00"),
    ("interval year to month", 13, "01 8000000d"),
    ("interval day to second", dt.timedelta(microseconds=1), "02 8000000000000001"),
    ("int", None, "00"),
]

DESCENDING: list[tuple[str, Any, str]] = [
    ("int", 1, "01 7ffffffe"),
    ("bigint", 0, "01 ffffffffffffffff"),
    ("decimal(19,1)", Decimal("12.3"), "01 99999999999999999876"),
    ("string", "a", "01 9e ffff"),
    ("struct<a:tinyint,b:string>", (1, None), "01 fe7e ff"),
    ("array<tinyint>", [1], "01 fe fe7e ff"),
    ("int", None, "ff"),
]


@pytest.mark.parametrize(("ddl", "value", "expected"), GOLDEN)
def test_golden_bytes_ascending_nulls_first(ddl: str, value: Any, expected: str) -> None:
    assert encode_row([value], [EncodedPart(parse_type(ddl))]) == bytes.fromhex(expected)


@pytest.mark.parametrize(("ddl", "value", "expected"), DESCENDING)
def test_golden_bytes_descending_nulls_last(ddl: str, value: Any, expected: str) -> None:
    part = EncodedPart(parse_type(ddl), descending=True, nulls_last=True)
    assert encode_row([value], [part]) == bytes.fromhex(expected)


@settings(max_examples=400, deadline=None)
@given(parts_and_rows())
def test_byte_order_is_row_order(case: tuple[tuple[EncodedPart, ...], list[tuple[Any, ...]]]) -> None:
    parts, (one, other) = case
    a, b = encode_row(one, parts), encode_row(other, parts)
    assert (a > b) - (a < b) == compare_rows(one, other, parts)


@settings(max_examples=400, deadline=None)
@given(parts_and_rows(rows=1))
def test_decoding_gives_the_normalised_row_back(case: tuple[tuple[EncodedPart, ...], list[tuple[Any, ...]]]) -> None:
    parts, (row,) = case
    decoded = decode_row(encode_row(row, parts), parts)
    assert compare_rows(decoded, row, parts) == 0
    assert encode_row(decoded, parts) == encode_row(row, parts)


@settings(max_examples=100, deadline=None)
@given(parts_and_rows(rows=1), st.integers(0, 3))
def test_first_columns_are_a_byte_prefix(case: tuple[tuple[EncodedPart, ...], list[tuple[Any, ...]]], k: int) -> None:
    parts, (row,) = case
    assert encode_row(row, parts).startswith(encode_row(row[:k], parts))


def test_what_spark_groups_together_is_one_value() -> None:
    assert math.copysign(1.0, normalise(-0.0, parse_type("double"))) == 1.0
    assert math.isnan(normalise(-math.nan, parse_type("float")))
    zone = dt.timezone(dt.timedelta(hours=2))
    local = dt.datetime(2013, 1, 1, 2, tzinfo=zone)
    assert normalise(local, parse_type("timestamp")) == dt.datetime(2013, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("tinyint", 128),
        ("int", True),
        ("int", "1"),
        ("decimal(5,2)", Decimal("0.001")),
        ("decimal(38,0)", Decimal(10) ** 38),
        ("string", 1),
        ("string", "\ud800"),
        ("date", dt.datetime(2013, 1, 1)),
        ("boolean", 1),
        ("struct<a:int>", (1, 2)),
        ("float", 1e39),
    ],
)
def test_a_value_of_another_type_is_refused(ddl: str, value: Any) -> None:
    with pytest.raises(StateError, match="is not a"):
        encode_row([value], [EncodedPart(parse_type(ddl))])


@pytest.mark.parametrize("encoded", ["", "01", "01800000", "0180000001ff", "ff"])
def test_bytes_of_another_key_are_refused(encoded: str) -> None:
    with pytest.raises(StateError, match="key"):
        decode_row(bytes.fromhex(encoded), [EncodedPart(parse_type("int"))])


def test_more_values_than_columns_are_refused() -> None:
    with pytest.raises(StateError, match="2 values for a key of 1"):
        encode_row([1, 2], [EncodedPart(parse_type("int"))])


@pytest.mark.parametrize(
    ("ddl", "named"),
    [("map<string,int>", "column k"), ("struct<a:variant>", "k.a"), ("array<map<int,int>>", r"k\[\]"),
     ("string collate UTF8_LCASE", "collation")],
)  # fmt: skip
def test_types_without_an_order_are_refused_by_name(ddl: str, named: str) -> None:
    with pytest.raises(PlanError, match=named):
        encoded_parts([StateColumn("k", ddl)], [KeyPart("k")])
