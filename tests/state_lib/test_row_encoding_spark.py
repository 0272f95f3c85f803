"""The row encoding in the JVM: the same bytes as the Python twin, and the order and groups of Spark itself.

Each test runs twice: by the compiled function, and by Spark's own expressions.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from key_values import KEY_TYPES, values_of
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.merge import key_order
from relstate_dagster.state_lib.row_encoding import EncodedPart, encode_key, encode_row, encode_storage_key, parse_type
from relstate_dagster.state_lib.row_encoding.spark_codec import KEY_FUNCTION, use_key_function
from relstate_dagster.state_lib.table_schema import KeyPart, StateColumn

ORDERS = [(False, False), (False, True), (True, False), (True, True)]

GROUPS = {
    "integers": KEY_TYPES[:4],
    "decimals": KEY_TYPES[4:10],
    "floats": KEY_TYPES[10:12],
    "text": KEY_TYPES[12:15],
    "times": KEY_TYPES[15:20],
    "nested": KEY_TYPES[20:],
}

_spark_settings = settings(
    max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


def typed_frame(spark: SparkSession, types: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Rows of columns ``c0``, ``c1``, …; PySpark cannot send year-month intervals, so they go as months."""
    fields = []
    columns: list[Column] = []
    for n, ddl in enumerate(types):
        data_type = parse_type(ddl)
        months = isinstance(data_type, T.YearMonthIntervalType)
        fields.append(T.StructField(f"c{n}", T.IntegerType() if months else data_type))
        columns.append((F.expr("INTERVAL '1' MONTH") * F.col(f"c{n}")).alias(f"c{n}") if months else F.col(f"c{n}"))
    return spark.createDataFrame(list(rows), T.StructType(fields)).select(*columns)


@pytest.fixture(params=["function", "expressions"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How keys are encoded."""
    use_key_function(use=request.param == "function")
    yield request.param
    use_key_function()


@contextlib.contextmanager
def configured(spark: SparkSession, **changed: str) -> Iterator[None]:
    names = {name: name.replace("__", ".") for name in changed}
    before = {name: spark.conf.get(names[name]) for name in changed}
    for name, value in changed.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(names[name], str(value))


@pytest.mark.spark
@pytest.mark.parametrize("group", GROUPS)
def test_the_jvm_writes_the_bytes_of_the_python_twin(spark: SparkSession, group: str) -> None:
    types = [parse_type(ddl) for ddl in GROUPS[group]]

    @_spark_settings
    @given(st.lists(st.tuples(*map(values_of, types)), min_size=30, max_size=60), st.booleans(), st.booleans())
    def check(rows: list[tuple[Any, ...]], ansi: bool, is_compiled: bool) -> None:
        encoded = [
            encode_key([(F.col(f"c{n}"), data_type, *order)]).alias(f"k{n}_{m}")
            for n, data_type in enumerate(types)
            for m, order in enumerate(ORDERS)
        ]
        zone = "America/New_York"
        settings = {
            "spark__sql__ansi__enabled": str(ansi).lower(),
            "spark__sql__session__timeZone": zone,
            "spark__sql__codegen__wholeStage": str(is_compiled).lower(),
            "spark__sql__codegen__factoryMode": "FALLBACK" if is_compiled else "NO_CODEGEN",
        }
        with configured(spark, **settings):
            frame = typed_frame(spark, GROUPS[group], rows)
            found = frame.select(*encoded).collect()
        for row, keys in zip(rows, found, strict=True):
            for n, data_type in enumerate(types):
                for m, order in enumerate(ORDERS):
                    expected = encode_row([row[n]], [EncodedPart(data_type, *order)])
                    assert bytes(keys[f"k{n}_{m}"]) == expected, (data_type.simpleString(), row[n], order)

    check()


@pytest.mark.spark
@pytest.mark.parametrize(
    "types",
    [
        ["string", "int", "double"],
        ["float", "string", "decimal(38,38)"],
        ["boolean", "struct<a:int,b:string>", "array<double>"],
        ["binary", "array<struct<a:array<string>,b:decimal(20,3)>>", "timestamp_ntz"],
    ],
)
def test_bytes_sort_and_group_as_spark_does(spark: SparkSession, types: list[str]) -> None:
    key = [KeyPart("c0", True, True), KeyPart("c1", False, True), KeyPart("c2", True, False)]
    columns = [StateColumn(f"c{n}", ddl) for n, ddl in enumerate(types)]
    row = st.tuples(*(values_of(parse_type(ddl)) for ddl in types))

    @_spark_settings
    @given(st.lists(row, min_size=40, max_size=80))
    def check(rows: list[tuple[Any, ...]]) -> None:
        # Twice, so that ties on the first columns are common and groups have more than one row.
        frame = typed_frame(spark, types, [*rows, *((a, *rest) for (a, *_), (_, *rest) in itertools.pairwise(rows))])
        keyed = frame.select("*", encode_storage_key(columns, key).alias("key"))
        keys = [bytes(r["key"]) for r in keyed.orderBy(*key_order(key)).select("key").collect()]
        assert keys == sorted(keys)
        assert keyed.groupBy("c0", "c1", "c2").agg(F.min("key")).count() == len(set(keys))

    check()


@pytest.mark.spark
def test_every_power_of_two_and_its_neighbours_have_exact_bits(spark: SparkSession) -> None:
    """Exponent and mantissa come by arithmetic; `log2` is one off next to some powers of two."""
    doubles = [s * v for e in range(-1074, 1024) for v in _neighbours(2.0**e) for s in (1, -1) if math.isfinite(v)]
    frame = typed_frame(spark, ["double"], [(v,) for v in doubles])
    keys = frame.select(encode_key([(F.col("c0"), T.DoubleType(), False, False)]).alias("key")).collect()
    part = [EncodedPart(T.DoubleType())]
    assert [bytes(r["key"]) for r in keys] == [encode_row([v], part) for v in doubles]


def _neighbours(value: float) -> list[float]:
    return [math.nextafter(value, 0.0), value, math.nextafter(value, math.inf)]


@pytest.mark.spark
def test_wall_clock_times_that_daylight_saving_skips_or_repeats_are_apart(spark: SparkSession) -> None:
    with configured(spark, spark__sql__session__timeZone="America/New_York"):
        times = spark.sql("SELECT explode(sequence(0, 1439)) AS minute").selectExpr(
            "TIMESTAMP_NTZ'2013-03-10 00:00:00' + minute * INTERVAL '1' MINUTE AS t"
        )
        key = encode_key([(F.col("t"), T.TimestampNTZType(), False, False)])
        assert times.select(key.alias("key")).distinct().count() == 1440


@pytest.mark.spark
def test_an_empty_key_is_empty_bytes_and_a_map_is_refused(spark: SparkSession) -> None:
    assert spark.range(1).select(encode_key([]).alias("key")).collect()[0]["key"] == b""
    with pytest.raises(PlanError, match="map"):
        encode_key([(F.lit(1), parse_type("map<string,int>"), False, False)])


@pytest.mark.spark
def test_columns_of_other_types_than_declared_are_cast(spark: SparkSession, way: str) -> None:
    """As those of a source whose INT column a view reads as BIGINT; by the function nested ones as well, by their place."""
    declared = [parse_type("bigint"), parse_type("decimal(20,2)"), parse_type("struct<x:bigint,y:array<double>>")]
    if way == "expressions":
        declared = [parse_type("bigint")]
    row = spark.sql("SELECT 7 AS a, CAST(1.5 AS DECIMAL(3,1)) AS b, struct(1 AS p, array(CAST(2 AS FLOAT), NULL) AS q) AS c")
    key = encode_key([(F.col(name), data_type, False, False) for name, data_type in zip("abc", declared, strict=False)])
    (found,) = row.select(key.alias("key")).collect()
    parts = [EncodedPart(data_type) for data_type in declared]
    assert bytes(found["key"]) == encode_row([7, Decimal("1.50"), (1, [2.0, None])][: len(parts)], parts)


@pytest.mark.spark
def test_one_expression_encodes_a_wide_key(spark: SparkSession, way: str) -> None:
    """Sessions opened later have the function too, and code of wide keys stays small enough for Java to compile."""
    if way == "expressions":
        return
    names = [f"{letter}{n}" for n in range(30) for letter in "dez"]
    values = {"d": "id / {n}D", "e": "CAST(id AS DECIMAL(38,10))", "z": "string(id)"}
    columns = [f"{values[name[0]].format(n=int(name[1:]) + 1)} AS {name}" for name in names]
    rows = spark.newSession().range(3).selectExpr(*columns)
    types = {"d": T.DoubleType(), "e": T.DecimalType(38, 10), "z": T.StringType()}
    keyed = rows.select(encode_key([(F.col(name), types[name[0]], False, False) for name in names]).alias("key"))
    text = keyed._jdf.queryExecution().optimizedPlan().toString()
    assert (text.count("encode("), text.count("hex(")) == (1, 0)
    code = keyed._jdf.queryExecution().executedPlan()
    assert "*(1) Project" in code.toString()
    expected = [
        encode_row(
            [{"d": i / (n + 1), "e": Decimal(i), "z": str(i)}[letter] for n in range(30) for letter in "dez"],
            [EncodedPart(types[name[0]]) for name in names],
        )
        for i in range(3)
    ]
    assert sorted(bytes(row["key"]) for row in keyed.collect()) == sorted(expected)
    assert KEY_FUNCTION in {row["function"] for row in spark.sql(f"SHOW FUNCTIONS LIKE '{KEY_FUNCTION}'").collect()}
