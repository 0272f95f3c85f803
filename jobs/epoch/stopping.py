"""What a run does that is stopped from outside (Ctrl-C, Terminate in Dagster): nothing that it has begun goes on behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.spark.job_tag import tagged_jobs

#: Cancels the Spark jobs of a run.
CancelJobs: TypeAlias = Callable[[], None]
#: How long until it is looked whether a cancelled thread has begun another job.
_PAUSE_SECONDS: Final = 0.2


@contextmanager
def cancellable_jobs(spark: SparkSession, sessions: Callable[[], Collection[SparkSession]]) -> Iterator[CancelJobs]:
    """The jobs of this thread, and of those that it starts, can be cancelled; gives what does so.

    Parameters
    ----------
    sessions : those that work is done in. Over Spark Connect, which knows no tags across sessions, all of what these do is
        cancelled.
    """

    def interrupt_all() -> None:
        for session in sessions():
            session.interruptAll()

    with tagged_jobs(spark) as tag:
        yield interrupt_all if tag is None else lambda: spark.sparkContext.cancelJobsWithTag(tag)


def stop(under_way: Collection[Future[Any]], cancel: CancelJobs) -> None:
    """Wait for threads that are to end, and cancel their jobs until they have: a thread may begin another one."""
    pending = {future for future in under_way if not future.cancel()}
    while pending:
        with suppress(Py4JError, PySparkException, OSError):
            cancel()
        pending = wait(pending, timeout=_PAUSE_SECONDS).not_done
