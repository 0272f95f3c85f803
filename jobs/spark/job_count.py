"""How many Spark jobs a piece of work has started."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

#: The number so far; ``None`` where Spark does not say.
JobCount = Callable[[], int | None]


@contextmanager
def counted_jobs(spark: SparkSession) -> Iterator[JobCount]:
    """Count the jobs of this thread, and of those that it starts."""
    if not hasattr(spark, "_jsparkSession"):  # Spark Connect
        yield lambda: None
        return
    context, tag = spark.sparkContext, f"relstate-count-{uuid.uuid4().hex}"
    context.addJobTag(tag)
    try:
        yield lambda: len(context._jsc.sc().statusTracker().getJobIdsForTag(tag))
    finally:
        with suppress(Py4JError):  # of a JVM that is gone
            context.removeJobTag(tag)
