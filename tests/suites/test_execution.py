"""A handful of queries over the epochs; ``python -m tests.suites`` runs them all."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.suites.changes import EPOCHS
from tests.suites.runner import SuiteRunner, epoch_files
from tests.suites.suite import suite


@pytest.mark.parametrize(("name", "query"), [("tpch", "q4"), ("tpcds", "q41"), ("tpcds", "q52"), ("tpcds", "q86")])
def test_the_view_equals_its_query_after_every_epoch(spark: SparkSession, name: str, query: str) -> None:
    chosen = suite(name)
    report = SuiteRunner(spark, chosen).run(query, epoch_files(chosen), EPOCHS)
    assert report.error == ""
    assert report.equal
    assert report.changed >= 3
