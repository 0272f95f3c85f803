from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.row_encoding import parse_type, to_ddl

_LEAVES = st.sampled_from(
    [T.ByteType(), T.LongType(), T.DecimalType(38, 6), T.StringType(), T.TimestampNTZType(), T.BinaryType(),
     T.DayTimeIntervalType(0, 3), T.YearMonthIntervalType(0, 1), T.VariantType(), T.NullType()]
)  # fmt: skip


def _nested(inner: st.SearchStrategy[T.DataType]) -> st.SearchStrategy[T.DataType]:
    fields = st.lists(st.tuples(st.sampled_from(["a", "b c", "d`e", "f.g", "null"]), inner), max_size=3)
    return (
        inner.map(T.ArrayType)
        | st.tuples(inner, inner).map(lambda pair: T.MapType(*pair))
        | fields.map(lambda fs: T.StructType([T.StructField(name, t) for name, t in fs]))
    )


@given(st.recursive(_LEAVES, _nested, max_leaves=5))
def test_a_type_written_and_parsed_is_the_same(data_type: T.DataType) -> None:
    assert parse_type(to_ddl(data_type)) == data_type


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("BIGINT", T.LongType()),
        ("decimal", T.DecimalType(10, 0)),
        ("Numeric( 15 , 2 )", T.DecimalType(15, 2)),
        ("varchar(10)", T.VarcharType(10)),
        ("struct<a:int NOT NULL COMMENT 'it\\'s',b:string>",
         T.StructType([T.StructField("a", T.IntegerType(), False), T.StructField("b", T.StringType())])),
        ("string collate UTF8_LCASE", T.StringType("UTF8_LCASE")),
        ("interval day to second", T.DayTimeIntervalType(0, 3)),
        ("interval month", T.YearMonthIntervalType(1, 1)),
        ("struct<>", T.StructType([])),
    ],
)  # fmt: skip
def test_spellings(ddl: str, expected: T.DataType) -> None:
    assert parse_type(ddl) == expected


@pytest.mark.parametrize(
    "ddl", ["", "integre", "array<int", "array<int>>", "decimal(a)", "interval second to day", "int;", "map<int>"]
)
def test_what_is_no_type_is_refused(ddl: str) -> None:
    with pytest.raises(PlanError, match="not a Spark type"):
        parse_type(ddl)
