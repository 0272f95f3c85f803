"""Digests of keys are equal exactly if the keys are."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Field, Project, Scan
from relstate_dagster.jobs.planner.short_keys import with_short_key
from relstate_dagster.state_lib.sql_text import quoted

#: Values of each type whose texts could be confused with those of others.
_VALUES: dict[str, list[Any]] = {
    "int": [None, 1, 11, -1],
    "bigint": [None, 1, 11, 2**62],
    "boolean": [None, True, False],
    "decimal(20,3)": [None, Decimal("1.000"), Decimal("11.000"), Decimal("-0.001")],
    "date": [None, date(1, 1, 1), date(2024, 3, 31)],
    "timestamp": [None, datetime(2024, 3, 31, 1, 30), datetime(2024, 10, 27, 1, 30, 0, 1)],
    "timestamp_ntz": [None, datetime(2024, 3, 31, 2, 30), datetime(1, 1, 1)],
    "string": [None, "", "n", "1", "1:1", "1|1", "|", "n|n", "1:|1:n", "ä", "\x00", "2:1|"],
    "binary": [None, b"", b"n", b"1", b"\x00"],
}


def _node(types: list[str]) -> Scan:
    columns = tuple(Field(f"k {n}", data_type, True) for n, data_type in enumerate(types))
    return Scan("t", (*columns, Field("v", "int", True)), tuple(f.name for f in columns), False)


@pytest.mark.parametrize("seed", range(6))
def test_only_equal_keys_have_the_same_digest(spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    types = draw.choices(list(_VALUES), k=draw.randint(3, 6)) if seed else ["string"] * 4
    node = _node(types)
    short = with_short_key(node, {"v"})
    assert isinstance(short, Project)
    assert short.stream_key == ("_row_key",)
    assert short.column_names == ("v", "_row_key")
    rows = {tuple(draw.choice(_VALUES[t]) for t in types) for _ in range(3000)}
    session = spark.newSession()
    schema = ", ".join(f"{quoted(f.name)} {f.data_type}" for f in node.columns)
    frame = session.createDataFrame([(*row, 0) for row in rows], schema)
    digest = short.expressions[-1].sql
    found = frame.selectExpr(f"{digest} AS d").distinct()
    assert found.count() == len(rows)
    assert {len(bytes(row.d)) for row in found.collect()} == {16}
    before = sorted(row.d for row in found.collect())
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    assert sorted(row.d for row in frame.selectExpr(f"{digest} AS d").distinct().collect()) == before


@pytest.mark.parametrize(
    ("types", "shown"),
    [
        (["int", "int"], {"v"}),
        (["int", "int", "int"], {"v", "k 1"}),
        (["int", "int", "double"], {"v"}),
        (["int", "int", "struct<a: int>"], {"v"}),
        (["int", "int", "string collate UTF8_LCASE"], {"v"}),
    ],
)
def test_other_keys_stay_as_they_are(types: list[str], shown: set[str]) -> None:
    node = _node(types)
    assert with_short_key(node, shown) is node
