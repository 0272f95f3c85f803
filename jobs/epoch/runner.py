"""The epoch runner: which views take part in an epoch, in which order, and what becomes of those that cannot.

An epoch e is a barrier. It begins with a catalog commit that pins a version of every source; then each view, upstream
first, makes one state commit and publishes; it ends with a catalog commit that names what every view has come to
(:mod:`jobs.epoch.protocol`). A view that cannot be computed is left behind, alone: the others complete the epoch.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from jobs import failpoints
from jobs.catalog.entries import CatalogState, EpochEntry, ViewEntry, ViewVersions
from jobs.catalog.store import ConcurrentCatalogChange
from jobs.epoch.anew import choose_anew
from jobs.epoch.compaction import CompactReport, compact_view
from jobs.epoch.explained import ends_the_run, explained
from jobs.epoch.health import check_tables
from jobs.epoch.indexes import refresh_indexes
from jobs.epoch.inputs import EpochInputs
from jobs.epoch.key_check import CheckedKey, check_primary_keys
from jobs.epoch.left_behind import LeftBehind
from jobs.epoch.protocol import Reached, begun, completed, left_behind, solved, to_rebuild, waiting, with_dependents
from jobs.epoch.reports import VerifyReport, ViewReport
from jobs.epoch.sessions import Workload
from jobs.epoch.shared_reads import SharedReads, SourceReads
from jobs.epoch.vacuum import VacuumReport, vacuum
from jobs.epoch.verify import duplicate_keys, recompute_seconds, verify_view
from jobs.epoch.view_epoch import plan_of
from jobs.epoch.view_run import Done, ViewRuns
from jobs.functions import check_functions
from jobs.instants import Clock, read_clock, utc_now
from jobs.locking import run_lock
from jobs.planner.explain import explain_plan
from jobs.planner.nodes import depends_on_time
from jobs.registry import Registry
from jobs.relations import topological, with_upstream_views
from jobs.sources.delta_source import Pin, look_at
from jobs.warehouse import Warehouse
from state_lib.constants import RETAINED_HOURS
from state_lib.errors import DeclarationError


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
        self._runs = ViewRuns(spark, warehouse)
        self._reads = SourceReads()
        self._checked_keys: set[CheckedKey] = set()
        self._left = LeftBehind()
        #: The catalog as this run has read or written it last.
        self._known = CatalogState()

    def run(
        self, views: Sequence[str] | None = None, *, full_refresh: Sequence[str] = (), run_id: str | None = None
    ) -> Iterator[ViewReport]:
        """Run one epoch, yielding a report as each view is published, or left behind.

        Parameters
        ----------
        views : which views; all by default. A view whose upstream views are not among them goes to the newest epoch
            that all of those have reached.
        full_refresh : views to plan again and rebuild from their sources; views over them are rebuilt as well.

        Raises
        ------
        EpochError : another run holds the warehouse; nothing was done.
        RelstateError : views were left behind; raised once all others have reached the epoch. That of the one view, or an
            EpochError that names them all.
        """
        run_id = run_id or uuid.uuid4().hex
        if self._warehouse.functions is not None:
            self._warehouse.functions.load()
        self._reads, self._left = SourceReads(), LeftBehind()
        self._checked_keys.clear()
        with run_lock(self._warehouse.lock_path, run_id):
            state = self._known = self._warehouse.read()
            rebuilt = with_dependents(state, full_refresh)
            if state.running_epoch is not None:
                state = yield from self._settle(state, state.running_epoch, rebuilt)
            state = to_rebuild(state, full_refresh)
            yield from self._new_epoch(state, self._selected(state, views), run_id)
            if any(source.indexes for source in self._known.sources.values()):
                refresh_indexes(self._spark, self._warehouse, self._known, self._reads)
        self._left.raise_if_any()

    def _selected(self, state: CatalogState, views: Sequence[str] | None) -> list[str]:
        order = topological(state.working)
        if views is None:
            return order
        unknown = [v for v in views if v not in state.views]
        if unknown:
            raise DeclarationError(f"no materialized view named {', '.join(unknown)}; there are {', '.join(order) or 'none'}")
        return [v for v in order if v in views]

    # -- an epoch that an earlier run left unfinished -------------------------------------------------------------

    def _settle(self, state: CatalogState, epoch: EpochEntry, but: Sequence[str]) -> Generator[ViewReport, None, CatalogState]:
        """Publish what views have committed of an epoch that was not completed. What they had not, the next epoch computes."""
        working, left = state.working, LeftBehind()
        versions, reached = _versions_seen(working, epoch), dict[str, Reached]()
        for name in topological(working):
            view = working.views[name]
            if name not in epoch.views or epoch.epoch in view.epochs or name in but:
                continue
            inputs = self._runs.inputs(working, view, epoch, self._reads, versions)
            try:
                done = self._runs.bring(working, view, epoch, inputs, state.versions_at(name), {}, only_committed=True)
            except Exception as error:
                # It takes part in the next epoch, which says what becomes of it.
                self._stop_for(error)
                left.failed(view, error, epoch.epoch, _identities(epoch.pins, view))
                continue
            if done is not None:
                reached[name], versions[name] = done.reached, done.reached.versions
                yield done.report
        return self._write(completed(state, epoch, reached, left.problems))

    # -- an epoch -------------------------------------------------------------------------------------------------

    def _new_epoch(self, state: CatalogState, names: list[str], run_id: str) -> Iterator[ViewReport]:
        state = yield from self._planned(state, names)
        working = state.working
        sources = {name: self._reads.source(self._warehouse, entry) for name, entry in working.sources.items()}
        pins, unpinned = look_at(sources, working.last_pins)
        with_upstream = [v for v in names if not _outside_upstream(working, v, names)]
        epoch = EpochEntry(state.next_epoch, pins, (), run_id, instant=read_clock(self._clock))
        able = yield from self._able(working, epoch, with_upstream, unpinned)
        epoch = replace(epoch, views=tuple(able))
        stale = _stale(working, epoch)
        if stale:
            state, epoch = choose_anew(state, epoch, stale, lambda view: self._inputs(state.working, view, epoch))
            state = self._write(begun(state, epoch))
            failpoints.reached("after_begin")
            yield from self._finish(state, epoch)
        else:
            self._remember(solved(state, able))
            for view in able:
                yield _skipped(state, state.views[view])
        # Views selected without all of their upstream views follow to an epoch that those have all reached.
        for view in names:
            if view not in with_upstream and view not in self._left:
                yield from self._follow(self._known, view, run_id)

    def _planned(self, state: CatalogState, names: Sequence[str]) -> Generator[ViewReport, None, CatalogState]:
        """Plan views again that are to be built, on their inputs as they are now."""
        for name in names:
            view = state.working.views[name]
            if view.last_epoch is not None:
                continue
            try:
                session = self._runs.session(view, Workload.FULL)
                state = Registry(session, self._warehouse).planned_again(state, view)
            except Exception as error:
                self._stop_for(error)
                yield self._left.failed(view, error, None, {})
        return state

    def _able(
        self, state: CatalogState, epoch: EpochEntry, names: Sequence[str], unpinned: Mapping[str, Exception]
    ) -> Generator[ViewReport, None, list[str]]:
        """Leave views behind whose inputs cannot be read, before the epoch begins; returns the others."""
        for name in names:
            view = state.views[name]
            if name in self._left:
                continue
            try:
                for source in view.reads:
                    if source in unpinned:
                        raise unpinned[source]
                self._check_inputs(state, view, epoch)
            except Exception as error:
                self._stop_for(error)
                yield self._left.failed(view, error, None, _identities(epoch.pins, view))
        for name, upstream in waiting(state, names, self._left.problems).items():
            yield self._left.waits(state.views[name], upstream)
        return [name for name in names if name not in self._left]

    def _check_inputs(self, state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> None:
        """Raise for whatever a view cannot read, and if its own last epoch is lost."""
        check_tables(self._warehouse, state, view)
        if view.functions:
            check_functions(view, self._runs.session(view, Workload.FULL), self._warehouse.functions)
        inputs = self._inputs(state, view, epoch)
        found = inputs.check()
        keyed = [n for n in view.reads if n in state.sources and state.sources[n].primary_key]
        if keyed:
            session = self._runs.session(view, Workload.FULL)
            check_primary_keys(session, state, inputs, keyed, found, self._checked_keys)

    def _inputs(self, state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> EpochInputs:
        return self._runs.inputs(state, view, epoch, self._reads)

    def _follow(self, state: CatalogState, name: str, run_id: str) -> Iterator[ViewReport]:
        working = state.working
        view = working.views[name]
        upstream = [working.views[n] for n in view.reads if n in working.views]
        common = set.intersection(*(set(u.epochs) for u in upstream))
        reachable = [e for e in common if view.last_epoch is None or e > view.last_epoch]
        if not reachable and view.last_epoch is None:
            # The views it reads have reached no epoch together: the first epoch of this one is their next.
            yield from self._new_epoch(state, with_upstream_views(working, name), run_id)
            return
        if not reachable:
            yield _skipped(state, view)
            return
        target = working.epochs[max(reachable)]
        try:
            pins = {**target.pins, **self._late_pins(working, view, target)}
            entry = replace(target, pins=pins, views=(name,), run_id=run_id, complete=False)
            self._check_inputs(working, view, entry)
        except Exception as error:
            self._stop_for(error)
            yield self._left.failed(view, error, target.epoch, _identities(target.pins, view))
            self._remember(state)
            return
        yield from self._finish(self._write(begun(state, entry)), entry)

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
        """Bring every view of an epoch to it that can be, and complete the epoch."""
        working, reached = state.working, dict[str, Reached]()
        versions = _versions_seen(working, epoch)
        views = [working.views[n] for n in epoch.views if epoch.epoch not in working.views[n].epochs]
        self._reads.shared = SharedReads.of(working, epoch, views)
        for ended in self._side_by_side(state, working, views, epoch, versions):
            if isinstance(ended, Done):
                reached[ended.report.view] = ended.reached
                yield ended.report
            else:
                yield ended
        self._reads.shared = SharedReads()
        failpoints.reached("before_complete")
        self._write(completed(state, epoch, reached, self._left.problems))

    def _side_by_side(
        self,
        state: CatalogState,
        working: CatalogState,
        views: Sequence[ViewEntry],
        epoch: EpochEntry,
        versions: dict[str, ViewVersions],
    ) -> Iterator[Done | ViewReport]:
        """Run views as soon as those they read are done, several at a time: most of a small epoch is planning."""
        pending = {view.name: view for view in views}
        running: dict[Future[Done | None], str] = {}
        moved: dict[str, tuple[int, int]] = {}
        with ThreadPoolExecutor(max_workers=self._parallel_views) as pool:
            while running or pending:
                for name, upstream_behind in waiting(working, list(pending), self._left.problems).items():
                    yield self._left.waits(pending.pop(name), upstream_behind)
                unfinished = {*pending, *running.values()}
                for name, view in list(pending.items()):
                    if not unfinished & (set(view.reads) - {name}):
                        upstream = {n: moved[n] for n in view.reads if n in moved}
                        # Its jobs are of the job group, and in the pool, that the caller has set.
                        bring = inheritable_thread_target(self._spark)(self._runs.bring)
                        inputs = self._runs.inputs(working, view, epoch, self._reads, dict(versions))
                        seen = state.versions_at(name)
                        running[pool.submit(bring, working, view, epoch, inputs, seen, upstream)] = name
                        del pending[name]
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(future)
                    error = future.exception()
                    if isinstance(error, Exception):
                        self._stop_for(error)
                        view = working.views[name]
                        yield self._left.failed(view, error, epoch.epoch, _identities(epoch.pins, view))
                        continue
                    done = future.result()
                    assert done is not None
                    versions[name] = done.reached.versions
                    moved[name] = (done.report.rows_inserted, done.report.rows_deleted)
                    yield done

    def _stop_for(self, error: Exception) -> None:
        """Raise what no view is to blame for: the run ends, and the next one settles the epoch."""
        if isinstance(error, ConcurrentCatalogChange):
            raise error
        ended = ends_the_run(error)
        if ended is not None:
            raise ended from error

    def _remember(self, state: CatalogState) -> None:
        """Keep in the catalog why views were left behind, and what was planned, where that is news."""
        after = left_behind(state, self._left.problems)
        if after != self._known:
            self._write(after)

    def _write(self, state: CatalogState) -> CatalogState:
        self._known = self._warehouse.catalog.write(state)
        return self._known

    def compact(self, views: Sequence[str] | None = None) -> Iterator[CompactReport]:
        """Compact the state of views, beside whatever else runs: what an epoch would lose by it is not committed."""
        with run_lock(self._warehouse.maintenance_lock_path, uuid.uuid4().hex, doing="compacting state", shared=True):
            state = self._warehouse.read()
            for name in self._selected(state, views):
                view = state.views[name]
                if view.last_epoch is None:
                    continue
                try:
                    done = compact_view(self._runs.session(view, Workload.FULL), self._warehouse, state, view)
                except Exception as error:
                    raise ends_the_run(error) or explained(name, None, error) from error
                yield done

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
        return [verify_view(self._spark, self._warehouse, state, state.views[name]) for name in self._selected(state, views)]

    def full_recompute_seconds(self, views: Sequence[str]) -> dict[str, float]:
        """How long each view's query takes when run in full and written as a new Delta table, for comparison."""
        state = self._warehouse.read()
        return {name: recompute_seconds(self._spark, self._warehouse, state, state.views[name]) for name in views}

    def stream_key_unique(self, view: str) -> int:
        """How many keys of the published view occur more than once (0 is right)."""
        return duplicate_keys(self._spark, self._warehouse, self._warehouse.read().views[view])


def _outside_upstream(state: CatalogState, view: str, selected: Sequence[str]) -> list[str]:
    return [n for n in state.views[view].reads if n in state.views and n not in selected]


def _versions_seen(state: CatalogState, epoch: EpochEntry) -> dict[str, ViewVersions]:
    """What views have come to that do not take part in an epoch, or have reached it before."""
    found = dict(epoch.versions)
    for name in state.views:
        known = state.versions_at(name)
        if known is not None and name not in epoch.views:
            found.setdefault(name, known)
    return found


def _stale(state: CatalogState, epoch: EpochEntry) -> list[str]:
    """The views of an epoch that may change in it. A view over views that change takes part as well."""
    found = [v for v in epoch.views if _may_change(state, state.views[v], epoch)]
    for view in epoch.views:
        if view not in found and any(up in found for up in state.views[view].reads):
            found.append(view)
    return found


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


def _identities(pins: Mapping[str, Pin], view: ViewEntry) -> dict[str, str]:
    return {name: pins[name].identity for name in view.reads if name in pins}


def _skipped(state: CatalogState, view: ViewEntry) -> ViewReport:
    last = view.last_epoch
    assert last is not None
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
