"""Spark jobs that a piece of work has started: their number and progress."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


class StartedJobs:
    """Jobs with a tag (:func:`.jobs.engine.job_tag.tagged_jobs`).

    Without a tag, over Spark Connect, none are known.

    Parameters
    ----------
    spark : any session of the Spark that runs them.
    """

    def __init__(self, spark: SparkSession, tag: str | None) -> None:
        self._spark = spark
        self._tag = tag
        self._started = time.monotonic()

    def count(self) -> int | None:
        """Number of jobs so far."""
        tracker = self._tracker()
        return None if tracker is None else len(tracker.getJobIdsForTag(self._tag))

    def progress(self) -> str:
        """For people: elapsed time, and tasks done of the running jobs' stages."""
        seconds = f"{time.monotonic() - self._started:.0f} s so far"
        done = total = 0
        with suppress(Py4JError):
            for stage in self._stages():
                done, total = done + stage.numCompletedTasks(), total + stage.numTasks()
        return f"{seconds}, {done:,} of {total:,} Spark tasks done" if total else seconds

    def _stages(self) -> list[Any]:
        tracker = self._tracker()
        if tracker is None:
            return []
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(self._tag)]
        running = [job.get() for job in jobs if job.isDefined() and job.get().status().toString() == "RUNNING"]
        stages = [tracker.getStageInfo(stage) for job in running for stage in job.stageIds()]
        return [stage.get() for stage in stages if stage.isDefined()]

    def _tracker(self) -> Any:
        return None if self._tag is None else self._spark.sparkContext._jsc.sc().statusTracker()
