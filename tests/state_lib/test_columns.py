"""Columns selected by one text equal those that PySpark selects one by one."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.state_lib.columns import Columns, group_by
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.sql_text import quoted

PARTS_OF_NAMES = (
    "a",
    "B",
    "_x1",
    "`",
    "``",
    ".",
    ",",
    " ",
    "\x1f",
    "\x1f\x1f",
    "'",
    '"',
    "\\",
    "ü",
    "*",
    "1",
    "select",
    " AS ",
    ")",
    "\n",
)


@pytest.fixture(params=range(8))
def frame(request: pytest.FixtureRequest, spark: SparkSession) -> DataFrame:
    """A row whose columns have drawn names."""
    drawn = random.Random(request.param)
    names: dict[str, None] = {}
    while len(names) < 8:
        name = "".join(drawn.choices(PARTS_OF_NAMES, k=drawn.randint(1, 4)))
        if name.lower() not in {known.lower() for known in names}:
            names[name] = None
    columns = (f"{n} AS {quoted(name)}" for n, name in enumerate(names))
    return spark.range(1).selectExpr(*columns)


def test_names_and_expressions(frame: DataFrame) -> None:
    names = [quoted(name) for name in frame.columns]
    for wanted in (names, names[:1], list(reversed(names)), [names[0], names[0]], []):
        _same(select(frame, wanted), frame.select(*wanted))
    renamed = [f"{name} + 1 AS {name}" for name in names]
    for wanted in (renamed, [*names, *renamed], renamed[:1], [*names, "'a,b' AS t", "struct(1 AS x, 2 AS y) AS s"]):
        _same(select(frame, wanted), frame.selectExpr(*wanted))


def test_groups(frame: DataFrame) -> None:
    names = [quoted(name) for name in frame.columns]
    total = F.count("*").alias("n")
    for wanted in (names, names[:1], []):
        _same(group_by(frame, wanted).agg(total), frame.groupBy(*wanted).agg(total))


def test_columns_are_selected_from_any_frame(frame: DataFrame) -> None:
    kept = Columns([F.col(quoted(name)).alias(f"c{n}") for n, name in enumerate(frame.columns)])
    for of in (frame, frame.union(frame)):
        _same(kept.of(of), of.select(*kept))


def _same(ours: DataFrame, theirs: DataFrame) -> None:
    assert ours.schema == theirs.schema
    assert ours.collect() == theirs.collect()
