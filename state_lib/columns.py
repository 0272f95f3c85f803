"""Column expressions that are built once, since each costs several calls into the JVM."""

from __future__ import annotations

from pyspark import SparkContext


def jvm_of_columns() -> int:
    """Name of the JVM of Spark's columns, for keys of cached expressions."""
    return id(getattr(SparkContext, "_gateway", None))
