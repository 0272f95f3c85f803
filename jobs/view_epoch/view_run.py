"""Executor of a view's epoch: compute, commit, publish and maintain, each exactly once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.protocol import ViewProgress
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.job_count import StartedJobs
from relstate_dagster.jobs.engine.job_tag import tagged_jobs
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.operators.flows import completed
from relstate_dagster.jobs.operators.row_set import DriverLimitExceeded
from relstate_dagster.jobs.plan.epoch_rows import EpochRows, Flow
from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.jobs.plan.picture import plan_svg
from relstate_dagster.jobs.targets.chain import CommitsSince, EpochCommit, Fence
from relstate_dagster.jobs.targets.protocol import Published
from relstate_dagster.jobs.view_epoch.compaction import StateAfterEpoch, maintain
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.jobs.view_epoch.plan import plan_escalation, plan_view_epoch
from relstate_dagster.jobs.view_epoch.publish import publish
from relstate_dagster.jobs.view_epoch.refresh_choice import costs_after, nodes_with_state
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.jobs.view_epoch.session_pool import SessionPool
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads
from relstate_dagster.jobs.view_epoch.shown_rows import NO_ROWS, ShownRows
from relstate_dagster.jobs.view_epoch.steps import ViewEpochPlan
from relstate_dagster.jobs.view_epoch.view_epoch import (
    StateBase,
    StateCommit,
    compute_and_commit,
    found_commit,
    mv_rows,
    state_chain,
    state_commit_of,
)
from relstate_dagster.jobs.view_epoch.watermarks_after import watermarks_after
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.lake.folders import is_table
from relstate_dagster.state_lib.lake.statistics import row_count
from relstate_dagster.state_lib.state_files import StateFiles


@dataclass(frozen=True, slots=True)
class Advanced:
    """A view's report and progress after an epoch."""

    report: ViewReport
    reached: ViewProgress


class ViewRuns:
    """Brings single views to an epoch: plans it, and walks the steps of the plan.

    Parameters
    ----------
    spark : any session with Delta; work is done in sessions of its own on the same Spark.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark = spark
        self._warehouse = warehouse
        #: The sessions that work is done in.
        self.pool = SessionPool(spark, warehouse)
        self._at_work: dict[str, StartedJobs] = {}

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
        """Inputs of a view in an epoch."""
        return EpochInputs(self._warehouse, state, view, epoch, versions or {}, reads, self._spark)

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
        seen : what readers see of the view, also of the generation before.
        upstream : rows that upstream views have inserted and deleted in this epoch.
        fence : raises where another run has taken this one's views over.
        only_committed : finish what an earlier try has committed; ``None`` where it has not come that far.
        strict : check what every operator gives.
        """
        self._at_work.pop(view.name, None)
        planned, view = view.planned, inputs.view
        seconds: dict[str, float] = {}
        started = time.perf_counter()
        files = StateFiles(self._warehouse.state_path(view))
        base = _state_base(files, view, inputs, fence)
        if only_committed and base.earlier_commit is None:
            return None
        # What an upstream view published in this epoch is what this view reads of it, unless this view lags behind.
        is_level = view.last_epoch is not None
        moved = {n: rows for n, rows in upstream.items() if is_level and state.views[n].last_epoch == view.last_epoch}
        # What is committed is published, whether or not its sources can still be read.
        state_version = None if base.known is None else base.known.newest
        earlier = base.earlier_commit
        is_dropped = earlier is not None and not earlier.keeps_state
        sizes = inputs.planned_sizes(
            files, state_version, seen, moved, is_committed=earlier is not None, is_state_dropped=is_dropped
        )
        plan = plan_view_epoch(view, sizes, most_tasks=self.pool.configured_tasks)
        with tagged_jobs(self._spark) as tag:
            seconds["plan"] = time.perf_counter() - started
            jobs = self._at_work[view.name] = StartedJobs(self._spark, tag)
            started = time.perf_counter()
            commit, plan = (
                (base.earlier_commit, plan) if base.earlier_commit else self._computed(inputs, plan, base, strict=strict)
            )
            seconds["compute_and_commit"] = time.perf_counter() - started
            started = time.perf_counter()
            done: Published | None = None
            shown = NO_ROWS
            with self.pool.lend(view, plan.publish.engine, plan.publish.shuffle_tasks) as session:
                if epoch.slice is None and commit is not None and (mv_rows(view, commit) or view.last_epoch is None):
                    fence()
                    done, shown, plan = self._published(session, view, plan, files, commit, seen, base.wanted, fence)
                elif epoch.slice is None:
                    plan = plan.without_changes(is_committed=commit is not None)
                seconds["publish"] = time.perf_counter() - started
                # Another run's timing is not comparable.
                is_comparable = (
                    base.earlier_commit is None and commit is not None and epoch.slice is None and view.built_until is None
                )
                costs = costs_after(view, sizes, plan, seconds) if is_comparable else view.costs
                started = time.perf_counter()
                after: StateAfterEpoch | None = None
                if commit is not None:
                    after = maintain(session, plan.maintain, files, state, view, commit, epoch.epoch)
                    plan = plan.settled(after.step)
            seconds["compact"] = time.perf_counter() - started
            spark_jobs = jobs.count()
        versions = _versions(base.before, commit, done, base.wanted.digest)
        rows_in = {} if view.last_epoch is None else {read.relation: read.rows for read in sizes.reads if read.rows}
        rows = _rows(view, epoch, commit, done, rows_in) if commit else view.rows
        stored = files.at(commit.version) if commit else ()
        has_state = commit.keeps_state if commit else plan.keeps_state
        report = ViewReport(
            view=view.name,
            epoch=epoch.epoch,
            strategy=view.strategy if has_state else "full",
            reason=view.reason if has_state else plan.why_recomputed,
            rows_in=rows_in,
            rows_inserted=done.rows_inserted if done else 0,
            rows_deleted=done.rows_deleted if done else 0,
            changed=shown,
            late_rows=commit.late_rows if commit else 0,
            state_rows_written=sum(commit.rows.values()) if commit else 0,
            state_rows=row_count(stored) if commit else None,
            state_bytes=sum(file.bytes for file in stored) if commit else None,
            bytes_in=sizes.changed_bytes,
            spark_jobs=spark_jobs,
            of_full=_of_full(view, seconds),
            seconds=seconds,
            source_versions={n: epoch.pins[n].version for n in view.reads if n in epoch.pins},
            view_version=versions.view_version,
            plan_text=explain_plan(view.plan, view.node_tables),
            picture=plan_svg(view.plan, view.node_tables, rows) if commit else "",
            stages=plan.lines(),
            skipped=commit is None,
            advice=(*inputs.advice_lines(), *(done.advice if done else ())),
            is_repair=only_committed,
            is_backfill=view.last_epoch is None,
        )
        entry = _entry_after(view, epoch, inputs, commit, after, versions)
        entry = replace(entry, planned=planned, costs=costs, rows=rows)
        return Advanced(report, ViewProgress(entry, versions))

    def _computed(
        self, inputs: EpochInputs, plan: ViewEpochPlan, base: StateBase, *, strict: bool
    ) -> tuple[StateCommit | None, ViewEpochPlan]:
        """Compute and commit as planned.

        If far more rows are met, once more by another plan.
        """

        def run(plan: ViewEpochPlan) -> tuple[StateCommit | None, ViewEpochPlan]:
            step = plan.compute
            with self.pool.lend(inputs.view, step.engine, step.shuffle_tasks) as session:
                return compute_and_commit(inputs.within(session), plan, base, strict=strict)

        try:
            return run(plan)
        except DriverLimitExceeded as more:
            found = more.found
        most_tasks = self.pool.configured_tasks
        return run(plan_escalation(plan, found, most_tasks=most_tasks))

    def _published(
        self,
        session: SparkSession,
        view: ViewEntry,
        plan: ViewEpochPlan,
        files: StateFiles,
        commit: StateCommit,
        seen: ViewVersions | None,
        wanted: EpochCommit,
        fence: Fence,
    ) -> tuple[Published, ShownRows, ViewEpochPlan]:
        recorded = (seen or ViewVersions()).published_commit
        wanted = replace(wanted, base=recorded.digest)
        target = self._warehouse.target(view.name)
        writer = target.open(session, view.declared_table, wanted, recorded, fence, is_first=view.last_epoch is None)
        merging = partial(self.pool.lend, view, Workload.MERGE)
        done, shown, step = publish(session, merging, writer, files, view, commit, wanted.epoch, plan.publish)
        writer.maintain()
        if view.published_as is not None:
            target.register(session, view.published_as)
        return done, shown, plan.settled(step)


def _state_base(files: StateFiles, view: ViewEntry, inputs: EpochInputs, fence: Fence) -> StateBase:
    """The state that an epoch builds on.

    Raises
    ------
    StateError : the state is damaged, or another program changed it.
    """
    since = inputs.since
    before = None if since is None else since.versions.get(view.name)
    wanted = state_commit_of(inputs, before)
    known, earlier_commit = _state_so_far(files, view, before, wanted, fence)
    return StateBase(files, before, known, wanted, earlier_commit)


def _entry_after(
    view: ViewEntry,
    epoch: EpochEntry,
    inputs: EpochInputs,
    commit: StateCommit | None,
    after: StateAfterEpoch | None,
    versions: ViewVersions,
) -> ViewEntry:
    """A view's catalog entry after an epoch; its costs and rows are those of before.

    Parameters
    ----------
    commit : of its state; ``None`` where nothing changed.
    after : its state tables after the commit.
    """
    rewritten = after.merged_rows if after else {}
    merged = {**view.merged_rows, **{str(table): rows for table, rows in rewritten.items()}}
    counts = {str(table.table_id): table.vnode_count for table in (after.tables if after else view.tables)}
    entry = replace(view, vnode_counts=counts, merged_rows=merged)
    if epoch.slice is not None:
        # What a later slice reads is late for no watermark, nor is it old.
        return replace(entry, built_until=replace(epoch, versions={view.name: versions}), problem=None)
    unfilled = view.unfilled if commit is None else () if commit.keeps_state else nodes_with_state(view)
    entry = entry.reached(epoch.epoch, epoch.instant)
    return replace(entry, watermarks=watermarks_after(inputs), unfilled=unfilled)


def _of_full(view: ViewEntry, seconds: Mapping[str, float]) -> float | None:
    """Seconds of an incremental epoch as a share of the last full one."""
    full = view.costs.full
    return None if view.last_epoch is None or full is None or not full.seconds else sum(seconds.values()) / full.seconds


def _rows(
    view: ViewEntry, epoch: EpochEntry, commit: StateCommit, done: Published | None, rows_in: Mapping[str, Flow]
) -> EpochRows:
    """Rows that went through the plan.

    Of all slices so far, if the view is built in slices.
    """
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
    """The state that the epoch builds on, and the commit of an earlier try.

    Each is ``None`` if there is none.

    Raises
    ------
    StateError : the state is damaged, or another program changed it.
    """
    if before is None and not is_table(files.path):
        return None, None
    chain = state_chain(files, view, fence)
    recorded = (before or ViewVersions()).state_commit
    since = chain.since(recorded)
    earlier_commit = since.made_by(wanted)
    if earlier_commit is not None:
        return since, found_commit(files, earlier_commit)
    if since.foreign is not None:
        raise StateError(f"view {view.name}: {chain.changed_by_others(since, recorded)}")
    return (since if since.is_clean else chain.restore(since)), None


def _versions(before: ViewVersions | None, commit: StateCommit | None, done: Published | None, digest: str) -> ViewVersions:
    """Table versions of a view after an epoch.

    Unchanged if the epoch wrote or published nothing.
    """
    held = before or ViewVersions()
    if commit is None:
        return held
    published = (done.version, digest) if done is not None else (held.view_version, held.published)
    return ViewVersions(commit.version, published[0], digest, published[1])
