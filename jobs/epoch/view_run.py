"""One view brought to one epoch: computed and committed, published, its state kept small; each once, however often tried."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.epoch.chain import CommitsSince, EpochCommit, Fence
from relstate_dagster.jobs.epoch.compaction import StateAfterEpoch, state_after_epoch
from relstate_dagster.jobs.epoch.inputs import EpochInputs
from relstate_dagster.jobs.epoch.protocol import ViewProgress
from relstate_dagster.jobs.epoch.publish import publish, target_of
from relstate_dagster.jobs.epoch.published import Published
from relstate_dagster.jobs.epoch.refresh_choice import costs_after
from relstate_dagster.jobs.epoch.reports import ViewReport
from relstate_dagster.jobs.epoch.sessions import Workload, session_for
from relstate_dagster.jobs.epoch.shared_reads import SourceReads
from relstate_dagster.jobs.epoch.shown_rows import NO_ROWS
from relstate_dagster.jobs.epoch.stages import Stages, stages_of, tasks_of
from relstate_dagster.jobs.epoch.view_epoch import (
    StateCommit,
    compute_and_commit,
    found_commit,
    mv_rows,
    state_chain,
    state_commit_of,
)
from relstate_dagster.jobs.epoch.view_table import driver_writes, merge_small_files, written_by_driver
from relstate_dagster.jobs.epoch.watermarks_after import watermarks_after
from relstate_dagster.jobs.operators.flows import completed
from relstate_dagster.jobs.planner.epoch_rows import EpochRows, Flow
from relstate_dagster.jobs.planner.explain import explain_plan
from relstate_dagster.jobs.planner.picture import plan_svg
from relstate_dagster.jobs.spark.job_count import StartedJobs
from relstate_dagster.jobs.spark.job_tag import tagged_jobs
from relstate_dagster.jobs.spark.session import SHUFFLE_PARTITIONS
from relstate_dagster.jobs.warehouse import Warehouse
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.lake.folders import is_table
from relstate_dagster.state_lib.lake.statistics import row_count
from relstate_dagster.state_lib.lake.table import OpenedTable
from relstate_dagster.state_lib.row_width import memory_bytes
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore


@dataclass(frozen=True, slots=True)
class Advanced:
    """A view's report and progress after an epoch."""

    report: ViewReport
    reached: ViewProgress


class ViewRuns:
    """Brings single views to an epoch, in sessions that are kept.

    Parameters
    ----------
    spark : any session with Delta; work is done in sessions of its own on the same Spark.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark = spark
        self._warehouse = warehouse
        #: All sessions, and those that are not borrowed at the moment.
        self._sessions: list[SparkSession] = []
        self._idle: dict[tuple[object, ...], list[SparkSession]] = {}
        self._lock = threading.Lock()
        self._at_work: dict[str, StartedJobs] = {}

    @contextmanager
    def lent_session(self, view: ViewEntry, workload: Workload) -> Iterator[SparkSession]:
        """Borrow a session with a view's settings for exclusive use.

        While a view is published, its session carries that commit's transaction id. Sessions are kept, since starting one costs
        as much as a small job. There are no more than are used at the same time: each holds on to what it has computed last.
        """
        idle = self._idle.setdefault((tuple(sorted(view.settings.items())), workload), [])
        with self._lock:
            session = idle.pop() if idle else None
        if session is None:
            functions, is_local = self._warehouse.functions, self._warehouse.is_local
            session = session_for(self._spark, view.settings, workload, functions, is_local=is_local)
            with self._lock:
                self._sessions.append(session)
        try:
            yield session
        finally:
            with self._lock:
                idle.append(session)

    def sessions(self) -> list[SparkSession]:
        """All that work is done in."""
        with self._lock:
            return list(self._sessions)

    def progress(self, name: str) -> str:
        """For people: how far a view is that is being brought to an epoch."""
        jobs = self._at_work.get(name)
        return "it begins" if jobs is None else jobs.progress()

    def inputs(
        self,
        state: CatalogState,
        view: ViewEntry,
        epoch: EpochEntry,
        reads: SourceReads,
        versions: Mapping[str, ViewVersions] | None = None,
    ) -> EpochInputs:
        """What a view reads in an epoch."""
        return EpochInputs(self._spark, self._warehouse, state, view, epoch, versions or {}, reads=reads)

    def advance_view(
        self,
        state: CatalogState,
        view: ViewEntry,
        epoch: EpochEntry,
        inputs: EpochInputs,
        seen: ViewVersions | None,
        upstream: Mapping[str, tuple[int, int]],
        fence: Fence,
        *,
        only_committed: bool = False,
        strict: bool = False,
    ) -> Advanced | None:
        """Bring a view to an epoch.

        Parameters
        ----------
        state : the catalog as a run sees it.
        seen : what readers see of the view, be it of the generation before.
        upstream : rows that upstream views have inserted and deleted in this epoch.
        fence : raises where another run has taken this one's views over.
        only_committed : finish what an earlier try has committed; ``None`` where it has not come that far.
        strict : check what every operator gives.
        """
        self._at_work.pop(view.name, None)
        seconds: dict[str, float] = {}
        started = time.perf_counter()
        files = StateFiles(self._warehouse.state_path(view))
        since = inputs.since
        before = None if since is None else since.versions.get(view.name)
        wanted = state_commit_of(inputs, before)
        known, made = _state_so_far(files, view, before, wanted, fence)
        if only_committed and made is None:
            return None
        # What an upstream view published in this epoch is what this view reads of it, unless this view lags behind.
        if view.last_epoch is not None:
            inputs.sizes.moved = {n: rows for n, rows in upstream.items() if state.views[n].last_epoch == view.last_epoch}
        most_partitions = self._spark.conf.get(SHUFFLE_PARTITIONS) or "1"
        # What is committed is published, whether or not its sources can still be read.
        state_version = None if known is None else known.newest
        sizes = inputs.sizes.of_view(files, state_version, seen, is_committed=made is not None)
        stages = stages_of(view, sizes, most_tasks=int(most_partitions), driver_writes=written_by_driver(view))
        with self.lent_session(view, stages.workload) as session, tagged_jobs(self._spark) as tag:
            inputs.spark = session
            if stages.shuffle_tasks is not None:
                session.conf.set(SHUFFLE_PARTITIONS, str(stages.shuffle_tasks))
            seconds["plan"] = time.perf_counter() - started
            jobs = self._at_work[view.name] = StartedJobs(self._spark, tag)
            started = time.perf_counter()
            commit = made or compute_and_commit(inputs, stages, files, before, known, wanted, most_partitions, strict=strict)
            seconds["compute_and_commit"] = time.perf_counter() - started
            started = time.perf_counter()
            done: Published | None = None
            if epoch.slice is None:
                done, stages = self._publish(session, view, stages, files, commit, seen, wanted, fence, int(most_partitions))
            seconds["publish"] = time.perf_counter() - started
            # Another run's timing is not comparable.
            is_comparable = made is None and commit is not None and epoch.slice is None and view.built_until is None
            costs = costs_after(view, state, sizes, seconds) if is_comparable else view.costs
            started = time.perf_counter()
            after = StateAfterEpoch(view.tables, {})
            if commit is not None:
                after = state_after_epoch(session, files, state, view, commit, epoch.epoch)
            seconds["compact"] = time.perf_counter() - started
            versions = _versions(before, commit, done, wanted.digest)
            spark_jobs = jobs.count()
        rows_in = {} if view.last_epoch is None else {read.relation: read.rows for read in sizes.reads if read.rows}
        rows = _rows(view, epoch, commit, done, rows_in) if commit else view.rows
        stored = files.at(commit.version) if commit else ()
        report = ViewReport(
            view=view.name,
            epoch=epoch.epoch,
            strategy="full" if view.name in epoch.recomputed else view.strategy,
            reason=epoch.recomputed.get(view.name, view.reason),
            rows_in=rows_in,
            rows_inserted=done.rows_inserted if done else 0,
            rows_deleted=done.rows_deleted if done else 0,
            changed=done.changed if done else NO_ROWS,
            late_rows=commit.late_rows if commit else 0,
            state_rows_written=sum(commit.rows.values()) if commit else 0,
            state_rows=row_count(stored) if commit else None,
            state_bytes=sum(file.bytes for file in stored) if commit else None,
            bytes_in=sum(read.bytes for read in sizes.reads),
            spark_jobs=spark_jobs,
            of_full=_of_full(view, seconds),
            seconds=seconds,
            source_versions={n: epoch.pins[n].version for n in view.reads if n in epoch.pins},
            view_version=versions.view_version,
            plan_text=explain_plan(view.plan, view.tables),
            picture=plan_svg(view.plan, view.tables, rows) if commit else "",
            stages=stages.committed_by(commit.writer if commit else None).lines(),
            skipped=commit is None,
            advice=(*inputs.lookups.advice_lines(), *(done.advice_lines() if done else ())),
            is_repair=only_committed,
            is_backfill=view.last_epoch is None,
        )
        merged = {**view.merged_rows, **{str(table): rows for table, rows in after.merged_rows.items()}}
        counts = {str(table.table_id): table.vnode_count for table in after.tables}
        entry = replace(view, vnode_counts=counts, merged_rows=merged, costs=costs, rows=rows)
        if epoch.slice is not None:
            # What a later slice reads is late for no watermark, nor is it old.
            entry = replace(entry, built_until=replace(epoch, versions={view.name: versions}), problem=None)
        else:
            entry = replace(entry.reached(epoch.epoch, epoch.instant), watermarks=watermarks_after(inputs))
        return Advanced(report, ViewProgress(entry, versions))

    def _publish(
        self,
        session: SparkSession,
        view: ViewEntry,
        stages: Stages,
        files: StateFiles,
        commit: StateCommit | None,
        seen: ViewVersions | None,
        wanted: EpochCommit,
        fence: Fence,
        most_tasks: int,
    ) -> tuple[Published | None, Stages]:
        """What was published, if anything, and the stages with the size of the table."""
        first = view.last_epoch is None
        if commit is None or (mv_rows(view, commit) == 0 and not first):
            return None, stages
        fence()
        table = OpenedTable(self._warehouse.view_path(view.name))
        wanted = replace(wanted, base=(seen or ViewVersions()).published)
        target = target_of(session, table, view, wanted, seen, fence, first=first)
        size = target.table.total_bytes()
        stages = stages.for_target(size, driver_writes=driver_writes(view, target.table.opened()))
        store = StateStore(session, files, view.tables)
        writer = stages.publishes(mv_rows(view, commit))
        done = publish(session, target, store, view, commit, writer, tasks_of(memory_bytes(size), most_tasks))
        merge_small_files(target.table, view)
        return done, stages.published(done.writer, done.way)


def _of_full(view: ViewEntry, seconds: Mapping[str, float]) -> float | None:
    """What an incremental epoch took, by what the last took that computed all rows."""
    full = view.costs.full
    return None if view.last_epoch is None or full is None or not full.seconds else sum(seconds.values()) / full.seconds


def _rows(
    view: ViewEntry, epoch: EpochEntry, commit: StateCommit, done: Published | None, rows_in: Mapping[str, Flow]
) -> EpochRows:
    """The rows that went through the plan; of all slices so far, where the view is built in slices."""
    flows, written = commit.flows, Counter(commit.rows)
    if view.built_until is not None and view.rows is not None:
        before = view.rows.by_node(view.plan)
        flows = {node: (before[node][0] + flow[0], before[node][1] + flow[1]) for node, flow in flows.items() if node in before}
        written += Counter(view.rows.written)
    # What slices give is published by the last one.
    published = (done.rows_inserted, done.rows_deleted) if done else (0, 0)
    flows = completed(flows, view.plan, rows_in, None if epoch.slice is not None else published)
    return EpochRows.of(epoch.epoch, view.plan, flows, written)


def _state_so_far(
    files: StateFiles, view: ViewEntry, before: ViewVersions | None, wanted: EpochCommit, fence: Fence
) -> tuple[CommitsSince | None, StateCommit | None]:
    """The state that the epoch builds on (``None``: there is none yet), and the commit that an earlier try has made.

    Raises
    ------
    StateError : the state is damaged, or somebody else changed it.
    """
    if before is None and not is_table(files.path):
        return None, None
    chain = state_chain(files, view, fence)
    recorded = (before or ViewVersions()).state_commit
    since = chain.since(recorded)
    made = since.made_by(wanted)
    if made is not None:
        return since, found_commit(files, made)
    if since.foreign is not None:
        raise StateError(f"view {view.name}: {chain.changed_by_others(since, recorded)}")
    return (since if since.is_clean else chain.restore(since)), None


def _versions(before: ViewVersions | None, commit: StateCommit | None, done: Published | None, digest: str) -> ViewVersions:
    """What a view has come to; where an epoch wrote or published nothing, that is what it came to before."""
    held = before or ViewVersions()
    if commit is None:
        return held
    published = (done.version, digest) if done is not None else (held.view_version, held.published)
    return ViewVersions(commit.version, published[0], digest, published[1])
