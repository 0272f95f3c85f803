"""Cancellation of a run (Ctrl-C, Terminate in Dagster): no Spark job of it goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.job_tag import new_tag, tagged_steps

T = TypeVar("T")

#: Cancels the Spark jobs of a run.
CancelJobs: TypeAlias = Callable[[], None]
#: How long until it is looked whether a cancelled thread has begun another job.
_PAUSE_SECONDS: Final = 0.2


def cancellable(
    spark: SparkSession, sessions: Callable[[], Collection[SparkSession]], steps: Callable[[CancelJobs], Generator[T]]
) -> Iterator[T]:
    """Iterate a generator and cancel its Spark jobs when the caller stops.

    Parameters
    ----------
    sessions : those that work is done in. Over Spark Connect, which knows no tags across sessions, all of what these do is
        cancelled.
    """
    tag = new_tag(spark)

    def cancel() -> None:
        if tag is not None:
            spark.sparkContext.cancelJobsWithTag(tag)
            return
        for session in sessions():
            session.interruptAll()

    return tagged_steps(spark, tag, steps(cancel))


def stop(under_way: Collection[Future[Any]], cancel: CancelJobs) -> None:
    """Cancel the jobs of threads until all of them have ended.

    A thread may begin another job meanwhile.
    """
    pending = {future for future in under_way if not future.cancel()}
    while pending:
        with suppress(Py4JError, PySparkException, OSError):
            cancel()
        pending = wait(pending, timeout=_PAUSE_SECONDS).not_done
