"""Column expressions that are built once, since each costs several calls into the JVM."""

from __future__ import annotations

from pyspark import SparkContext


def jvm_of_columns() -> int:
    """Names the JVM that Spark's columns live in; part of the key under which expressions are kept."""
    return id(getattr(SparkContext, "_gateway", None))
