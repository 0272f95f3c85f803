"""Keys as people write them: typed by the table, whatever the names and values are."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import table

from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.key_text import parse_key
from relstate_dagster.state_lib.table_schema import KeyPart, StateColumn, StateTableSchema

_UTC = dt.timezone.utc


def _schema(columns: str, *key: str) -> StateTableSchema:
    return table(1, columns, list(key), label="sum(n)").schema


_OF_TYPES = [
    ("int", "5", "5", 5),
    ("bigint", "-9223372036854775808", "-9223372036854775808", -(2**63)),
    ("decimal(15,2)", "12.50", "12.50", Decimal("12.50")),
    ("decimal(38,0)", '"99999999999999999999999999999999999999"', "9" * 38, Decimal("9" * 38)),
    ("double", "1e300", "1e300", 1e300),
    ("double", '"-Infinity"', "-Infinity", float("-inf")),
    ("boolean", "true", "TRUE", True),
    ("string", '"a, b"', "'a, b'", "a, b"),
    ("string", '"NULL"', "'NULL'", "NULL"),
    ("string", '"it\'s"', "'it''s'", "it's"),
    ("string", '"é\\u0000\\n"', '"é\0\n"', "é\0\n"),
    ("string", '""', "''", ""),
    ("string", "null", "null", None),
    ("int", "null", "NULL", None),
    ("binary", '"00ff"', "00FF", b"\x00\xff"),
    ("date", '"2026-01-31"', "2026-01-31", dt.date(2026, 1, 31)),
    ("timestamp", '"2026-01-31T12:00:00Z"', "2026-01-31 12:00:00+00:00", dt.datetime(2026, 1, 31, 12, tzinfo=_UTC)),
    ("timestamp_ntz", '"2026-01-31T12:00:00.000001"', "2026-01-31 12:00:00.000001", dt.datetime(2026, 1, 31, 12, 0, 0, 1)),
    ("interval year to month", "14", "14", 14),
    ("interval day to second", "90.5", "90.5", dt.timedelta(seconds=90, milliseconds=500)),
]


@pytest.mark.parametrize(("ddl", "in_json", "in_pairs", "value"), _OF_TYPES)
def test_a_value_of_each_type(ddl: str, in_json: str, in_pairs: str, value: Any) -> None:
    schema = _schema(f"k {ddl}", "k")
    assert parse_key(f"[{in_json}]", schema) == {"k": value}
    assert parse_key(f"k={in_pairs}", schema) == {"k": value}


def test_nested_values_are_written_as_arrays() -> None:
    schema = _schema("k struct<a: int, b: array<decimal(5,1)>>", "k")
    assert parse_key('[[1, ["2.5", null]]]', schema) == {"k": (1, [Decimal("2.5"), None])}


@given(st.text(), st.text(alphabet="ab=,`'\" é", min_size=1), st.integers(-(2**31), 2**31 - 1))
def test_any_text_and_any_name(text: str, name: str, number: int) -> None:
    names = (name, f"{name}2")
    schema = StateTableSchema(**{**_fields(), **_two_columns(*names)})
    assert parse_key(json.dumps([text, number]), schema) == {names[0]: text, names[1]: number}
    quoted = ["`" + n.replace("`", "``") + "`" for n in names]
    for mark in "'\"":
        written = mark + text.replace(mark, mark * 2) + mark
        assert parse_key(f"{quoted[1]} = {number}, {quoted[0]} = {written}", schema) == {names[0]: text, names[1]: number}
        assert parse_key(f"{quoted[0]}={written}", schema) == {names[0]: text}


def _fields() -> dict[str, Any]:
    plain = _schema("k int", "k")
    return {name: getattr(plain, name) for name in ("label", "kind", "merge")}


def _two_columns(first: str, second: str) -> dict[str, Any]:
    columns = (StateColumn(first, "string"), StateColumn(second, "int"))
    return {"columns": columns, "storage_key": (KeyPart(first), KeyPart(second)), "prefix_length": 1, "distribution_key": ()}


_TWO = "city string; day date; n int"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["Oslo", "2026-01-31", 3]', r"3 values for a key of 2: the key of sum\(n\) is \(city, day\)"),
        ("[1]", r"city of sum\(n\) is of type STRING, not 1: a text is needed"),
        ('["Oslo", "31.1.2026"]', r"day of sum\(n\) is of type DATE, not \"31.1.2026\""),
        ('["Oslo", "2026-01-31T00:00:00"]', "is of type DATE"),
        ("day=2026-01-31", r"city is not given: a prefix of the key of sum\(n\) has its first columns, of \(city, day\)"),
        ("town=Oslo", r"town is not in the key of sum\(n\), which is \(city, day\)"),
        ("n=3", "n is not in the key"),
        ("city=Oslo, city=Bergen", "city is given twice"),
        ("Oslo", "a key is a JSON array or pairs such as .*; not understood: Oslo"),
        ("city='Oslo", "not understood: city='Oslo"),
        ("city='Oslo'x", "not understood"),
        ('["Oslo"', "is not a JSON array"),
    ],
)
def test_what_is_not_a_key_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        parse_key(text, _schema(_TWO, "city", "day"))


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("int", "2147483648"),
        ("int", "true"),
        ("int", "1.5"),
        ("tinyint", "300"),
        ("decimal(5,2)", "1.234"),
        ("decimal(5,2)", "1234"),
        ("decimal(5,2)", '"NaN"'),
        ("boolean", '"yes"'),
        ("binary", '"0"'),
        ("binary", '"xy"'),
        ("timestamp_ntz", '"2026-01-31T12:00:00Z"'),
        ("timestamp", "5"),
        ("array<int>", "5"),
        ("struct<a: int>", "[1, 2]"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused(ddl: str, value: str) -> None:
    with pytest.raises(DeclarationError, match=r"key column k of sum\(n\) is of type"):
        parse_key(f"[{value}]", _schema(f"k {ddl}", "k"))


def test_the_key_of_the_only_row_is_empty() -> None:
    assert parse_key("[]", _schema("n int")) == {}
    with pytest.raises(DeclarationError, match=r"1 values for a key of 0: the key of sum\(n\) is \(no columns\)"):
        parse_key("[1]", _schema("n int"))
