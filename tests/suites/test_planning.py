"""Every query of both suites is planned fully incrementally; no data is needed for that."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from state_lib.errors import PlanError
from tests.suites.runner import SuiteRunner
from tests.suites.suite import query_number, suite


@pytest.mark.parametrize(("name", "count"), [("tpch", 22), ("tpcds", 99)])
def test_every_query_is_planned_incrementally(spark: SparkSession, name: str, count: int) -> None:
    runner = SuiteRunner(spark, suite(name))
    refused = {}
    for query in runner.suite.queries:
        try:
            runner.plan(query)
        except PlanError as error:
            refused[query] = str(error)
    assert refused == {}
    assert {query_number(q) for q in runner.suite.queries} == set(range(1, count + 1))
