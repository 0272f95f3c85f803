"""A view that could be declared and never built is refused when it is declared."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from relstate_dagster.jobs.planner.planning import plan_view
from relstate_dagster.state_lib.errors import PlanError
from tests.operators.lab import RELATIONS


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("timestamp_seconds(k) - TIMESTAMP '2020-01-01'", "Delta stores no intervals"),
        ("INTERVAL '1' YEAR * k", "Delta stores no intervals"),
        ("make_interval(k)", "cast it to STRING"),
        ("array(struct(INTERVAL '1' DAY * k AS `interval`))", "Delta stores no intervals"),
        ("parse_json(s)", "VARIANT"),
        ("map(s, parse_json(s))", "VARIANT"),
        ("s COLLATE UTF8_LCASE", "collation"),
    ],
)
def test_a_column_that_cannot_be_published(spark: SparkSession, column: str, problem: str) -> None:
    with pytest.raises(PlanError, match=f"x.*{problem}|{problem}"):
        plan_view(spark, f"SELECT k, {column} AS x FROM t", RELATIONS)


@pytest.mark.parametrize(
    "column",
    ["NULL", "struct(k AS `interval`)", "map(k, 1)", "array(s)", "s COLLATE UTF8_LCASE = 'a'", "to_json(parse_json(s))"],
)
def test_columns_that_can(spark: SparkSession, column: str) -> None:
    plan_view(spark, f"SELECT k, {column} AS x FROM t", RELATIONS)


def test_a_column_that_state_cannot_keep(spark: SparkSession) -> None:
    query = (
        "SELECT k, to_json(j) AS x FROM (SELECT k, parse_json(s) AS j, row_number() OVER (ORDER BY k) AS n FROM t) WHERE n < 3"
    )
    with pytest.raises(NotIncremental, match="VARIANT") as refused:
        plan_view(spark, query, RELATIONS)
    assert refused.value.code == "type"
