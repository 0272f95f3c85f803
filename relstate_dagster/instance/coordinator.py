"""Launches runs without waiting for the daemon, if nothing is queued before them."""

from __future__ import annotations

from dagster import DagsterRun, DagsterRunStatus, QueuedRunCoordinator, RunsFilter
from dagster._core.run_coordinator.base import SubmitRunContext

_AT_WORK = (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING)


class PromptRunCoordinator(QueuedRunCoordinator):
    """Dagster's queue of runs, which launches a run at once if it may.

    No other run waits, and the limit allows it.

    The daemon looks at the queue once a second at most. Of two runs that are requested in the same instant both may be
    launched. The second then waits for the warehouse, as it does for a run of the command line.
    """

    def submit_run(self, context: SubmitRunContext) -> DagsterRun:
        """Launch a run, or put it into the queue."""
        run = context.dagster_run
        if run.status != DagsterRunStatus.NOT_STARTED or not self._may_start(run):
            return super().submit_run(context)
        return self._instance.launch_run(run.run_id, context.workspace)

    def _may_start(self, run: DagsterRun) -> bool:
        limits = self._instance.get_concurrency_config().run_queue_config
        # Whether limits of tags and pools allow a run, the daemon knows.
        if limits is None or limits.tag_concurrency_limits or run.run_op_concurrency:
            return False
        if self._count(1, DagsterRunStatus.QUEUED):
            return False
        most = limits.max_concurrent_runs
        return most < 0 or self._count(most, *_AT_WORK) < most

    def _count(self, most: int, *statuses: DagsterRunStatus) -> int:
        """Count the runs that have one of these statuses, ``most`` of them at most."""
        return len(self._instance.get_run_ids(RunsFilter(statuses=list(statuses)), limit=most)) if most else 0
