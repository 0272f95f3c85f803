"""Spark's folding of one expression, whose method had another name in Java before Spark 4.1."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.spark_versions.release import is_since

#: Scala writes a private method that its companion calls under the name of its class.
_BEFORE: Final = "org$apache$spark$sql$catalyst$optimizer$ConstantFolding$$constantFolding"


def with_constants_folded(session: SparkSession, rule: Any, expression: Any) -> Any:
    """The expression with its constant parts as literals; what raises an error stays."""
    return getattr(rule, "constantFolding" if is_since(session, 4, 1) else _BEFORE)(expression, False)
