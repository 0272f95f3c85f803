"""Session settings that decide what a query means.

A view keeps those that it was declared with.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

MEANING: Final = (
    "spark.sql.ansi.enabled",
    "spark.sql.session.timeZone",
    "spark.sql.caseSensitive",
    "spark.sql.timestampType",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.decimalOperations.allowPrecisionLoss",
)


def meaning_of(spark: SparkSession) -> dict[str, str]:
    """These settings of a session."""
    return {key: str(spark.conf.get(key)) for key in MEANING}
