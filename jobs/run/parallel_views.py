"""The views of an epoch at work, several at the same time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from pyspark.util import inheritable_thread_target

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry
from relstate_dagster.jobs.catalog.protocol import blocked_by
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.run.at_work import wait_any
from relstate_dagster.jobs.run.critical_path import critical_paths
from relstate_dagster.jobs.run.run_context import RunContext
from relstate_dagster.jobs.run.slices import progress
from relstate_dagster.jobs.view_epoch.cancellation import stop
from relstate_dagster.jobs.view_epoch.error_messages import lost_an_executor, reason_of
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads
from relstate_dagster.jobs.view_epoch.view_run import Advanced

_log = logging.getLogger(__name__)

#: How often a view is computed in one run where executors die.
_TRIES: Final = 3


def run_views_in_parallel(
    run: RunContext, state: CatalogState, epoch: EpochEntry, views: Sequence[ViewEntry]
) -> Iterator[Advanced | ViewReport]:
    """Bring views to an epoch, several at a time, each after its upstream views.

    Most of a small epoch is planning, so that views gain by it that Spark computes one after the other.

    Parameters
    ----------
    state : in which the epoch has begun.

    Yields
    ------
    A :class:`Advanced` for each view that was computed, and a report for each that is left behind.
    """
    working, left = state.working, run.left
    versions = working.versions_in(epoch)
    pending = {view.name: view for view in views}
    tries = Counter[str]()
    running: dict[Future[Advanced | None], str] = {}
    fence = run.claims.check
    moved: dict[str, tuple[int, int]] = {}
    paths = critical_paths(views)
    with ThreadPoolExecutor(max_workers=run.parallel_views) as pool, _stopped(run, running):
        while running or pending:
            for name, upstream_behind in blocked_by(working, list(pending), left.problems).items():
                yield left.waits(pending.pop(name), upstream_behind)
            for name in _next_views(pending, running.values(), paths, run.parallel_views):
                view = pending.pop(name)
                upstream = {n: moved[n] for n in view.reads if n in moved}
                # Its jobs are of the job group, and in the pool, that the caller has set.
                advance = inheritable_thread_target(run.spark)(run.runs.advance_view)
                # What is shared may have been on an executor that died.
                reads = SourceReads() if tries[name] else run.reads
                inputs = run.runs.inputs(working, view, epoch, reads, dict(versions))
                seen = state.versions_at(name)
                run.tell(f"{name}: {_doing(view, epoch)}")
                future = pool.submit(advance, working, view, epoch, inputs, seen, upstream, fence, strict=run.strict)
                running[future] = name
            for future in wait_any(running, run.runs.progress, run.tell):
                name = running.pop(future)
                error = future.exception()
                if isinstance(error, Exception):
                    run.raise_if_fatal(error, sorted({name, *running.values()}))
                    view = working.views[name]
                    tries[name] += 1
                    if lost_an_executor(error) and tries[name] < _TRIES:
                        _log.warning("computing %s once more, an executor was lost: %s", name, reason_of(error))
                        pending[name] = view
                        continue
                    yield run.failed(view, error, epoch.epoch, epoch.pins)
                    continue
                done = future.result()
                assert done is not None
                versions[name] = done.reached.versions
                moved[name] = (done.report.rows_inserted, done.report.rows_deleted)
                yield done


def _next_views(pending: Mapping[str, ViewEntry], running: Collection[str], paths: Mapping[str, float], most: int) -> list[str]:
    """Views to start now, those on the longest path first."""
    unfinished = {*pending, *running}
    ready = [name for name, view in pending.items() if not unfinished & (set(view.reads) - {name})]
    # One at a time, the order makes no difference to how long all take.
    first = sorted(ready, key=paths.__getitem__, reverse=True) if most > 1 else ready
    return first[: most - len(running)]


@contextmanager
def _stopped(run: RunContext, running: Collection[Future[Advanced | None]]) -> Iterator[None]:
    """Stop all work at once if the run is stopped from outside."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        stop(list(running), run.cancel_jobs)
        raise


def _doing(view: ViewEntry, epoch: EpochEntry) -> str:
    """For people: what is done to a view in an epoch."""
    if epoch.slice is not None:
        return progress(epoch.slice)
    if view.built_until is not None:
        return f"the last slice, built to epoch {epoch.epoch}"
    return f"{'built' if view.last_epoch is None else 'brought'} to epoch {epoch.epoch}"
