"""Every query of both suites is planned fully incrementally; no data is needed for that."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.errors import PlanError
from tests.suites.runner import SuiteRunner
from tests.suites.suite import query_number, suite


@pytest.mark.parametrize(("name", "count"), [("tpch", 22), ("tpcds", 99)])
def test_every_query_is_planned_incrementally(spark: SparkSession, name: str, count: int) -> None:
    def refused(queries: Sequence[str]) -> dict[str, str]:
        runner = SuiteRunner(spark, suite(name))
        found = {}
        for query in queries:
            try:
                runner.plan(query)
            except PlanError as error:
                found[query] = str(error)
        return found

    queries = list(suite(name).queries)
    with ThreadPoolExecutor(max_workers=2) as pool:
        assert list(pool.map(refused, (queries[::2], queries[1::2]))) == [{}, {}]
    assert {query_number(q) for q in queries} == set(range(1, count + 1))
