"""Tags of Spark jobs, to count or cancel those of one piece of work."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.jvm import GONE
from relstate_dagster.jobs.engine.spark_connect import is_remote

T = TypeVar("T")


@contextmanager
def tagged_jobs(spark: SparkSession, tag: str | None = None) -> Iterator[str | None]:
    """Tag the jobs of this thread, and of those that it starts.

    ``None`` over Spark Connect, where no tag spans sessions.

    Parameters
    ----------
    tag : one of :func:`new_tag`; another one by default.
    """
    tag = tag or new_tag(spark)
    if tag is None:
        yield None
        return
    context = spark.sparkContext
    with suppress(*GONE):  # what is done next says so
        context.addJobTag(tag)
    try:
        yield tag
    finally:
        with suppress(*GONE):
            context.removeJobTag(tag)


def new_tag(spark: SparkSession) -> str | None:
    """A tag that no job has yet; ``None`` over Spark Connect."""
    return None if is_remote(spark) else f"relstate-{uuid.uuid4().hex}"


def tagged_steps(spark: SparkSession, tag: str | None, steps: Generator[T]) -> Iterator[T]:
    """Iterate a generator, with jobs tagged while it works and not between its items.

    What a caller does between two steps is its own: its jobs are neither counted nor cancelled with these. And a generator
    that is dropped, which may be closed in any thread, leaves no tag on the one that began it.
    """
    try:
        while True:
            with tagged_jobs(spark, tag):
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step
    finally:
        with tagged_jobs(spark, tag):
            steps.close()
