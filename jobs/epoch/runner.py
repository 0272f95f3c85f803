"""The epoch runner: the only place that commits.

An epoch e is a barrier. It begins with a catalog commit that pins a version of every source; then each view, upstream
first, makes one state commit and publishes; it ends with a catalog commit that names what every view has come to. A run
that dies at any point leaves an epoch that has begun and is not complete: the next run finishes that very epoch, with the
same pins, from what is committed, before it begins one of its own.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from jobs import failpoints
from jobs.catalog.costs import Costs
from jobs.catalog.entries import CatalogState, EpochEntry, ViewEntry, ViewVersions
from jobs.epoch.anew import choose_anew, costs_after
from jobs.epoch.compaction import CompactReport, StateAfterEpoch, compact_view, readable_version, state_after_epoch
from jobs.epoch.indexes import refresh_indexes
from jobs.epoch.inputs import EpochInputs
from jobs.epoch.key_check import CheckedKey, check_primary_keys
from jobs.epoch.publish import publish
from jobs.epoch.published import Published
from jobs.epoch.reports import VerifyReport, ViewReport
from jobs.epoch.sessions import Workload, session_for, shuffle_for_change
from jobs.epoch.shared_reads import SharedReads, SourceReads
from jobs.epoch.vacuum import VacuumReport, vacuum
from jobs.epoch.verify import duplicate_keys, recompute_seconds, verify_view
from jobs.epoch.view_epoch import StateCommit, committed, compute_and_commit, mv_rows, plan_of
from jobs.functions import check_functions
from jobs.instants import Clock, read_clock, utc_now
from jobs.locking import run_lock
from jobs.planner.explain import explain_plan
from jobs.planner.nodes import depends_on_time
from jobs.registry import restart
from jobs.relations import topological, with_upstream_views
from jobs.sources.delta_source import Pin
from jobs.spark.session import SHUFFLE_PARTITIONS
from jobs.warehouse import Warehouse
from state_lib.constants import RETAINED_HOURS
from state_lib.errors import DeclarationError, EpochError
from state_lib.state_files import StateFiles
from state_lib.state_store import FEW_ROWS, StateStore

#: Up to this many bytes of state and change together, an epoch's fixed cost is what counts.
SMALL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Done:
    """A view brought to an epoch."""

    report: ViewReport
    versions: ViewVersions
    state: StateAfterEpoch
    costs: Costs


class EpochRunner:
    """Brings the views of a warehouse up to date.

    Parameters
    ----------
    spark : any session with Delta; work is done in sessions of its own on the same Spark.
    warehouse : where sources, views and state lie.
    parallel_views : how many views are computed at the same time.
    clock : asked once an epoch for the instant that is ``now()`` in all of its views.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse, *, parallel_views: int = 3, clock: Clock = utc_now) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._parallel_views = parallel_views
        self._clock = clock
        self._sessions: dict[tuple[object, ...], SparkSession] = {}
        self._reads = SourceReads()
        self._checked_keys: set[CheckedKey] = set()

    def _session(self, view: ViewEntry, workload: Workload) -> SparkSession:
        """A session with the settings of a view's plan, kept: starting one costs as much as a small job.

        Each thread has its own: while a view is published, its session carries that commit's transaction id.
        """
        place = (threading.get_ident(), tuple(sorted(view.settings.items())), workload)
        if place not in self._sessions:
            self._sessions[place] = session_for(
                self._spark, view.settings, workload, self._warehouse.functions, is_local=self._warehouse.is_local
            )
        return self._sessions[place]

    def run(
        self, views: Sequence[str] | None = None, *, full_refresh: Sequence[str] = (), run_id: str | None = None
    ) -> Iterator[ViewReport]:
        """Run one epoch, yielding a report as each view is published.

        Parameters
        ----------
        views : which views; all by default. A view whose upstream views are not among them goes to the newest epoch
            that all of those have reached.
        full_refresh : views to rebuild from their sources; views over them are rebuilt as well.

        Raises
        ------
        EpochError : another run holds the warehouse, or the epoch cannot be completed.
        SourceError : a source cannot give its changes; raised before anything is written.
        DeclarationError : the user's functions cannot be registered, or lack one that a view calls; raised before anything
            is written.
        """
        run_id = run_id or uuid.uuid4().hex
        if self._warehouse.functions is not None:
            self._warehouse.functions.load()
        self._reads = SourceReads()
        self._checked_keys.clear()
        with run_lock(self._warehouse.lock_path, run_id):
            # A view that is to be rebuilt is rebuilt in an unfinished epoch as well: what kept it from finishing may be it.
            state = restart(self._warehouse.read(), full_refresh)
            unfinished = state.running_epoch
            if unfinished is not None:
                if self._has_commits(state, unfinished):
                    yield from self._finish(state, unfinished)
                    state = self._warehouse.read()
                else:
                    # Nothing of it was committed: new pins are as good as the old ones, and may be readable.
                    state = _forget(state, unfinished)
            names = self._selected(state, views)
            yield from self._new_epoch(state, names, run_id)
            if any(source.indexes for source in state.sources.values()):
                refresh_indexes(self._spark, self._warehouse, self._warehouse.read(), self._reads)

    def _selected(self, state: CatalogState, views: Sequence[str] | None) -> list[str]:
        order = topological(state)
        if views is None:
            return order
        unknown = [v for v in views if v not in state.views]
        if unknown:
            raise DeclarationError(f"no materialized view named {', '.join(unknown)}; there are {', '.join(order) or 'none'}")
        return [v for v in order if v in views]

    def _has_commits(self, state: CatalogState, epoch: EpochEntry) -> bool:
        return any(
            committed(StateFiles(self._warehouse.state_path(state.views[v])), state.views[v], epoch.epoch) is not None
            for v in epoch.views
            if v in state.views
        )

    def pins(self, state: CatalogState) -> dict[str, Pin]:
        """Look once at every source, all at the same time, without Spark."""
        last = state.last_pins
        used = sorted(state.sources)
        if not used:
            return {}
        with ThreadPoolExecutor(max_workers=min(16, len(used))) as pool:
            found = pool.map(lambda name: self._reads.source(self._warehouse, state.sources[name]).pin(last.get(name)), used)
            return dict(zip(used, found, strict=True))

    def _new_epoch(self, state: CatalogState, names: list[str], run_id: str) -> Iterator[ViewReport]:
        pins = self.pins(state)
        number = state.next_epoch
        with_upstream = {v for v in names if not _outside_upstream(state, v, names)}
        epoch = EpochEntry(number, pins, tuple(v for v in names if v in with_upstream), run_id, instant=read_clock(self._clock))
        stale = [v for v in epoch.views if _may_change(state, state.views[v], epoch)]
        # A view over views that change in this epoch takes part as well.
        for view in epoch.views:
            if view not in stale and any(up in stale for up in state.views[view].reads):
                stale.append(view)
        if stale:
            self._check_inputs(state, epoch)
            state, epoch = choose_anew(state, epoch, stale, lambda view: self._inputs(state, view, epoch))
            begun = self._warehouse.catalog.write(state.with_epoch(epoch))
            failpoints.reached("after_begin")
            yield from self._finish(begun, epoch)
        else:
            for view in epoch.views:
                yield _skipped(state, state.views[view])
        # Views selected without all of their upstream views follow to an epoch that those have all reached.
        for view in names:
            if view not in with_upstream:
                yield from self._follow(self._warehouse.read(), view, run_id)

    def _check_inputs(self, state: CatalogState, epoch: EpochEntry) -> None:
        """Raise for whatever cannot be read, before the epoch begins."""
        session = None
        for name in epoch.views:
            view = state.views[name]
            if view.functions:
                check_functions(view, self._session(view, Workload.FULL), self._warehouse.functions)
            inputs = self._inputs(state, view, epoch)
            found = inputs.check()
            keyed = [n for n in view.reads if n in state.sources and state.sources[n].primary_key]
            if keyed:
                session = session or self._session(view, Workload.FULL)
                check_primary_keys(session, state, inputs, keyed, found, self._checked_keys)

    def _inputs(
        self, state: CatalogState, view: ViewEntry, epoch: EpochEntry, versions: Mapping[str, ViewVersions] | None = None
    ) -> EpochInputs:
        return EpochInputs(self._spark, self._warehouse, state, view, epoch, versions or {}, reads=self._reads)

    def _follow(self, state: CatalogState, name: str, run_id: str) -> Iterator[ViewReport]:
        view = state.views[name]
        upstream = [state.views[n] for n in view.reads if n in state.views]
        common = set.intersection(*(set(u.epochs) for u in upstream))
        reachable = [e for e in common if view.last_epoch is None or e > view.last_epoch]
        if not reachable and view.last_epoch is None:
            # The views it reads have reached no epoch together: the first epoch of this one is their next.
            yield from self._new_epoch(state, with_upstream_views(state, name), run_id)
            return
        if not reachable:
            yield _skipped(state, view)
            return
        target = state.epochs[max(reachable)]
        pins = {**target.pins, **self._late_pins(state, view, target)}
        entry = replace(target, pins=pins, views=(name,), run_id=run_id, complete=False)
        self._check_inputs(state, entry)
        yield from self._finish(self._warehouse.catalog.write(state.with_epoch(entry)), entry)

    def _late_pins(self, state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> dict[str, Pin]:
        """Pins for sources that were registered after an epoch began: no view at that epoch has read them yet.

        They are pinned as the next epoch that knows them has them, so that no pin ever goes back.
        """
        pins: dict[str, Pin] = {}
        for name in view.reads:
            if name in state.sources and name not in epoch.pins:
                later = (state.epochs[n].pins.get(name) for n in sorted(state.epochs) if n > epoch.epoch)
                pins[name] = next((p for p in later if p is not None), None) or self._reads.source(
                    self._warehouse, state.sources[name]
                ).pin(None)
        return pins

    def _finish(self, state: CatalogState, epoch: EpochEntry) -> Iterator[ViewReport]:
        """Bring every view of an epoch to it, whatever of that has been done before, and complete the epoch."""
        if epoch.instant is None:
            # It was begun by a version that pinned none. From here on it has one, whatever becomes of this run.
            epoch = replace(epoch, instant=read_clock(self._clock))
            state = self._warehouse.catalog.write(state.with_epoch(epoch))
        versions: dict[str, ViewVersions] = dict(epoch.versions)
        for name in state.views:
            known = state.versions_at(name)
            if known is not None and name not in epoch.views:
                versions.setdefault(name, known)
        entries: dict[str, ViewEntry] = {}
        views = [state.views[n] for n in epoch.views if n in state.views and epoch.epoch not in state.views[n].epochs]
        self._reads.shared = SharedReads.of(state, epoch, views)
        for name, done in self._side_by_side(state, views, epoch, versions):
            versions[name] = done.versions
            view = state.views[name]
            merged = {**view.merged_rows, **{str(table): rows for table, rows in done.state.merged_rows.items()}}
            entries[name] = replace(view.reached(epoch.epoch), tables=done.state.tables, merged_rows=merged, costs=done.costs)
            yield done.report
        self._reads.shared = SharedReads()
        failpoints.reached("before_complete")
        finished = replace(state, views={**state.views, **entries})
        kept = {n: v for n, v in versions.items() if n in finished.views and epoch.epoch in finished.views[n].epochs}
        completed = replace(epoch, versions=kept, complete=True, views=state.epochs.get(epoch.epoch, epoch).views)
        self._warehouse.catalog.write(finished.with_epoch(completed))

    def _side_by_side(
        self, state: CatalogState, views: Sequence[ViewEntry], epoch: EpochEntry, versions: dict[str, ViewVersions]
    ) -> Iterator[tuple[str, _Done]]:
        """Run views as soon as those they read are done, several at a time: most of a small epoch is planning.

        An error ends the epoch once the views that are under way have ended; the next run finishes it.
        """
        pending = {view.name: view for view in views}
        running: dict[Future[_Done], str] = {}
        moved: dict[str, tuple[int, int]] = {}
        failed: BaseException | None = None
        with ThreadPoolExecutor(max_workers=self._parallel_views) as pool:
            while running or (pending and failed is None):
                unfinished = {*pending, *running.values()}
                for name, view in list(pending.items()):
                    if failed is None and not unfinished & (set(view.reads) - {name}):
                        upstream = {n: moved[n] for n in view.reads if n in moved}
                        # Its jobs are of the job group, and in the pool, that the caller has set.
                        compute = inheritable_thread_target(self._spark)(self._view)
                        running[pool.submit(compute, state, view, epoch, dict(versions), upstream)] = name
                        del pending[name]
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(future)
                    error = future.exception()
                    if error is not None:
                        failed = failed or error
                        continue
                    done = future.result()
                    versions[name] = done.versions
                    moved[name] = (done.report.rows_inserted, done.report.rows_deleted)
                    yield name, done
        if failed is not None:
            raise failed

    def _view(
        self,
        state: CatalogState,
        view: ViewEntry,
        epoch: EpochEntry,
        versions: Mapping[str, ViewVersions],
        upstream: Mapping[str, tuple[int, int]],
    ) -> _Done:
        seconds: dict[str, float] = {}
        started = time.perf_counter()
        inputs = self._inputs(state, view, epoch, versions)
        inputs.check()
        # What an upstream view published in this epoch is what this view reads of it, unless this view lags behind.
        in_step = {n: rows for n, rows in upstream.items() if state.views[n].last_epoch == view.last_epoch}
        if view.last_epoch is not None:
            inputs.rows_in.update(in_step)
        files = StateFiles(self._warehouse.state_path(view))
        workload = self._workload(view, inputs, files)
        session = self._session(view, workload)
        inputs.state_is_large = workload is Workload.LARGE
        inputs.spark = session
        most_partitions = self._spark.conf.get(SHUFFLE_PARTITIONS) or "1"
        if workload is not Workload.FULL:
            shuffle_for_change(session, inputs.changed_bytes, most_partitions)
        before = None if view.last_epoch is None else state.versions_at(view.name)
        seconds["plan"] = time.perf_counter() - started
        started = time.perf_counter()
        commit = committed(files, view, epoch.epoch)
        is_repaired = commit is not None
        if commit is None:
            previous = readable_version(files, view, before.state_version if before else None)
            commit = compute_and_commit(inputs, files, before, previous, most_partitions)
        seconds["compute_and_commit"] = time.perf_counter() - started
        started = time.perf_counter()
        done = self._publish(session, view, epoch, files, commit, before, small=inputs.is_small)
        seconds["publish"] = time.perf_counter() - started
        # What it took another run to compute, or not to, tells nothing.
        costs = view.costs if is_repaired or commit is None else costs_after(view, inputs, seconds)
        started = time.perf_counter()
        after = StateAfterEpoch(view.tables, {})
        if commit is not None:
            after = state_after_epoch(session, files, state, view, commit, epoch.epoch)
        seconds["compact"] = time.perf_counter() - started
        state_version = commit.version if commit else (before.state_version if before else None)
        view_version = done.version if done else (before.view_version if before else None)
        report = ViewReport(
            view=view.name,
            epoch=epoch.epoch,
            strategy="full" if view.name in epoch.anew else view.strategy,
            reason=epoch.anew.get(view.name, view.reason),
            rows_in=dict(inputs.rows_in),
            rows_inserted=done.rows_inserted if done else 0,
            rows_deleted=done.rows_deleted if done else 0,
            state_rows_written=sum(commit.rows.values()) if commit else 0,
            seconds=seconds,
            source_versions={n: epoch.pins[n].version for n in view.reads if n in epoch.pins},
            view_version=view_version,
            plan_text=explain_plan(plan_of(view), view.tables),
            skipped=commit is None,
            advice=inputs.lookups.advice_lines(),
        )
        return _Done(report, ViewVersions(state_version, view_version), after, costs)

    def _workload(self, view: ViewEntry, inputs: EpochInputs, files: StateFiles) -> Workload:
        if view.strategy == "full":
            return Workload.FULL
        looked_up = 0 if inputs.is_backfill else files.total_bytes() + inputs.lookups.in_place_bytes()
        if inputs.changed_bytes + looked_up <= SMALL_BYTES:
            return Workload.SMALL
        return Workload.FULL if inputs.is_backfill else Workload.LARGE

    def _publish(
        self,
        session: SparkSession,
        view: ViewEntry,
        epoch: EpochEntry,
        files: StateFiles,
        commit: StateCommit | None,
        before: ViewVersions | None,
        *,
        small: bool,
    ) -> Published | None:
        first = before is None or before.view_version is None
        if commit is None or (mv_rows(view, commit) == 0 and not first):
            return None
        # Much may have changed, and come to little.
        small = small or mv_rows(view, commit) <= FEW_ROWS
        store = StateStore(session, files, view.tables)
        path = self._warehouse.view_path(view.name)
        return publish(session, path, store, view, epoch.epoch, commit, small=small)

    def compact(self, views: Sequence[str] | None = None) -> Iterator[CompactReport]:
        """Compact the state of views, beside whatever else runs: what an epoch would lose by it is not committed."""
        with run_lock(self._warehouse.maintenance_lock_path, uuid.uuid4().hex, doing="compacting state", shared=True):
            state = self._warehouse.read()
            for name in self._selected(state, views):
                view = state.views[name]
                if view.last_epoch is not None:
                    yield compact_view(self._session(view, Workload.FULL), self._warehouse, state, view)

    def vacuum(
        self, views: Sequence[str] | None = None, *, epochs: int | None = None, hours: int = RETAINED_HOURS
    ) -> Iterator[VacuumReport]:
        """Delete the files of views, state and catalog that no retained epoch needs; see :func:`jobs.epoch.vacuum.vacuum`.

        Raises
        ------
        EpochError : a run or a compaction is going on.
        """
        run_id, doing = uuid.uuid4().hex, "deleting old files"
        with (
            run_lock(self._warehouse.lock_path, run_id, doing=doing),
            run_lock(self._warehouse.maintenance_lock_path, run_id, doing=doing),
        ):
            state = self._warehouse.read()
            names = self._selected(state, views)
            yield from vacuum(self._spark.newSession(), self._warehouse, state, names, epochs=epochs, hours=hours)

    def verify(self, views: Sequence[str] | None = None) -> list[VerifyReport]:
        """Compare views, as of the last epoch each has reached, with their queries run in full, both ways."""
        state = self._warehouse.read()
        return [
            verify_view(self._spark, self._warehouse, state, state.views[name])
            for name in self._selected(state, views)
            if state.views[name].last_epoch is not None
        ]

    def full_recompute_seconds(self, views: Sequence[str]) -> dict[str, float]:
        """How long each view's query takes when run in full and written as a new Delta table, for comparison."""
        state = self._warehouse.read()
        return {name: recompute_seconds(self._spark, self._warehouse, state, state.views[name]) for name in views}

    def stream_key_unique(self, view: str) -> int:
        """How many keys of the published view occur more than once (0 is right)."""
        return duplicate_keys(self._spark, self._warehouse, self._warehouse.read().views[view])


def _outside_upstream(state: CatalogState, view: str, selected: Sequence[str]) -> list[str]:
    return [n for n in state.views[view].reads if n in state.views and n not in selected]


def _may_change(state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> bool:
    """Whether a view can differ from its last epoch: it has none, time or a source moved, or an upstream view did."""
    if view.last_epoch is None:
        return True
    if depends_on_time(plan_of(view)):
        return True
    since = state.epochs[view.last_epoch]
    for name in view.reads:
        if name in state.views:
            last = state.views[name].last_epoch
            if last is not None and last > view.last_epoch:
                return True
        elif name not in since.pins or not since.pins[name].is_same(epoch.pins[name]):
            return True
    return False


def _forget(state: CatalogState, epoch: EpochEntry) -> CatalogState:
    if any(epoch.epoch in view.epochs for view in state.views.values()):
        # Views that reached it before stay where they are; only the one that was to follow did not come.
        return state.with_epoch(replace(epoch, complete=True))
    epochs = {n: e for n, e in state.epochs.items() if n != epoch.epoch}
    # Its number is not used again: a dead run may still be writing under it.
    return replace(state, epochs=epochs, next_epoch=max(state.next_epoch, epoch.epoch + 1))


def _skipped(state: CatalogState, view: ViewEntry) -> ViewReport:
    last = view.last_epoch
    if last is None:
        raise EpochError(f"view {view.name} waits for the views it reads: run those first, or run all")
    pins = state.epochs[last].pins
    return ViewReport(
        view=view.name,
        epoch=last,
        strategy=view.strategy,
        reason=view.reason,
        source_versions={n: pins[n].version for n in view.reads if n in pins},
        view_version=state.epochs[last].versions[view.name].view_version,
        plan_text=explain_plan(plan_of(view), view.tables),
        skipped=True,
    )
