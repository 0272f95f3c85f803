"""Session settings that decide what a query means.

A view keeps those that it was declared with.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from relstate_dagster.jobs.declare.session_settings import MEANING


def meaning_of(spark: SparkSession) -> dict[str, str]:
    """These settings of a session."""
    return {key: str(spark.conf.get(key)) for key in MEANING}
