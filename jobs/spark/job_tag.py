"""A tag on Spark jobs, by which those of one piece of work are found again: to count them, or to cancel them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


@contextmanager
def tagged_jobs(spark: SparkSession) -> Iterator[str | None]:
    """Tag the jobs of this thread, and of those that it starts; ``None`` over Spark Connect, where no tag spans sessions."""
    if not hasattr(spark, "_jsparkSession"):
        yield None
        return
    context, tag = spark.sparkContext, f"relstate-{uuid.uuid4().hex}"
    context.addJobTag(tag)
    try:
        yield tag
    finally:
        with suppress(Py4JError):  # of a JVM that is gone
            context.removeJobTag(tag)
