"""Capabilities that not every release of Spark has, found by asking Spark."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.spark_release import hadoop_release, spark_release

#: The release whose functions the lists of known functions are complete for.
NEWEST = "4.2"


def is_newest() -> bool:
    """Whether the installed Spark has all functions that are known."""
    return spark_release() == NEWEST


def commits_to_s3() -> bool:
    """Whether Hadoop in the installed Spark has conditional creates."""
    return tuple(map(int, hadoop_release().split("."))) >= (3, 4, 2)


def accepts(spark: SparkSession, query: str) -> bool:
    """Whether Spark analyses a query."""
    try:
        return bool(spark.sql(query).schema)
    except PySparkException:
        return False


def need(spark: SparkSession, query: str) -> None:
    """Skip a test where Spark refuses a query that it is about."""
    if not accepts(spark, query):
        pytest.skip(f"Spark {spark.version} refuses {query}")


def need_recursion(spark: SparkSession) -> None:
    """Skip a test where Spark analyses a recursion and cannot run it."""
    try:
        spark.sql("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT * FROM n").collect()
    except (PySparkException, Py4JJavaError):
        pytest.skip(f"Spark {spark.version} runs no recursion")


def collects_nulls(spark: SparkSession) -> bool:
    """Whether ``collect_list`` takes RESPECT NULLS at its word."""
    query = "SELECT size(collect_list(x) RESPECT NULLS) FROM VALUES (CAST(NULL AS INT)) AS v(x)"
    return accepts(spark, query) and spark.sql(query).collect() == [(1,)]
