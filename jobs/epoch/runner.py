"""The epoch runner: which views take part in an epoch, in which order, and what becomes of those that cannot.

An epoch e is a barrier. It begins with a catalog commit that pins a version of every source; then each view, upstream
first, makes one state commit and publishes; it ends with a catalog commit that names what every view has come to
(:mod:`.jobs.epoch.protocol`). A view that cannot be computed is left behind, alone: the others complete the epoch.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from relstate_dagster.jobs import failpoints
from relstate_dagster.jobs.catalog.entries import Claim, EpochEntry, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.state import CatalogState, ConcurrentCatalogChange
from relstate_dagster.jobs.catalog_relations import topological, with_upstream_views
from relstate_dagster.jobs.epoch.at_work import first_ended
from relstate_dagster.jobs.epoch.chain import Fence
from relstate_dagster.jobs.epoch.checks import check_view
from relstate_dagster.jobs.epoch.claims import Claims
from relstate_dagster.jobs.epoch.compaction import CompactReport, compact_view
from relstate_dagster.jobs.epoch.explained import ends_the_run, explained, lost_an_executor, reason_of
from relstate_dagster.jobs.epoch.health import check_functions, check_tables
from relstate_dagster.jobs.epoch.indexes import refresh_indexes
from relstate_dagster.jobs.epoch.ingest import Ingested, ingest_all
from relstate_dagster.jobs.epoch.inputs import EpochInputs
from relstate_dagster.jobs.epoch.key_check import CheckedKey, check_primary_keys
from relstate_dagster.jobs.epoch.left_behind import LeftBehind
from relstate_dagster.jobs.epoch.protocol import (
    UNNUMBERED,
    Claimed,
    ClaimLost,
    Reached,
    begun,
    completed,
    epochs_numbered,
    in_the_way,
    left_behind,
    solved,
    taken_over,
    to_rebuild,
    waiting,
    with_dependents,
)
from relstate_dagster.jobs.epoch.refresh_choice import choose_refresh
from relstate_dagster.jobs.epoch.reports import CheckReport, VerifyReport, ViewReport, unchanged
from relstate_dagster.jobs.epoch.sessions import Workload
from relstate_dagster.jobs.epoch.shared_reads import SharedReads, SourceReads
from relstate_dagster.jobs.epoch.stopping import CancelJobs, cancellable_jobs, stop
from relstate_dagster.jobs.epoch.until_version import check_reachable, named_sources, reachable_epochs
from relstate_dagster.jobs.epoch.vacuum import VacuumReport, vacuum
from relstate_dagster.jobs.epoch.verify import duplicate_keys, recompute_seconds, verify_view
from relstate_dagster.jobs.epoch.view_run import Done, ViewRuns
from relstate_dagster.jobs.instants import Clock, read_clock, utc_now
from relstate_dagster.jobs.locking import maintenance_lock
from relstate_dagster.jobs.planner.nodes import depends_on_time
from relstate_dagster.jobs.sources.delta_source import look_at
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.view_planner import ViewPlanner
from relstate_dagster.jobs.warehouse import Warehouse
from relstate_dagster.state_lib.constants import RETAINED_HOURS
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.sizing import sizing

_log = logging.getLogger(__name__)

#: How often an epoch is begun where others are faster every time.
_ATTEMPTS: Final = 20
#: How often a view is computed in one run where executors die.
_TRIES: Final = 3


class EpochRunner:
    """Brings the views of a warehouse up to date.

    Parameters
    ----------
    spark : any session with Delta; work is done in sessions of its own on the same Spark.
    warehouse : where sources, views and state lie.
    parallel_views : how many views are computed at the same time.
    clock : asked once an epoch for the instant that is ``now()`` in all of its views.
    wait_seconds : how long to wait for other runs that have some of the same views (:func:`.jobs.locking.seconds_to_wait`).
    on_wait : called with whom a run waits for; by default it is logged.
    on_start : called with what begins: a view, and which epoch it is brought to; and with how far one is that takes long.
    interrupted : called between steps, before commits and while others are waited for; it may raise, which ends the run.
    runs : sessions to go on with, of an earlier runner of the same warehouse.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        *,
        parallel_views: int = 3,
        clock: Clock = utc_now,
        wait_seconds: float | None = None,
        on_wait: Callable[[str], None] | None = None,
        on_start: Callable[[str], None] = lambda _said: None,
        interrupted: Callable[[], None] = lambda: None,
        runs: ViewRuns | None = None,
    ) -> None:
        sizing()  # what the environment says of it, before anything is written
        self._spark = spark
        self._warehouse = warehouse
        self._parallel_views = parallel_views
        self._clock = clock
        self._catalog = warehouse.catalog
        self._runs = runs or ViewRuns(spark, warehouse)
        self._reads = SourceReads()
        self._checked_keys: set[CheckedKey] = set()
        self._left = LeftBehind()
        self._ingested: dict[str, Ingested] = {}
        self._until: dict[str, int] = {}
        self._strict = False
        self._cancel_jobs: CancelJobs = lambda: None
        self._wait_seconds = wait_seconds
        self._on_wait = on_wait or _log.warning
        self._on_start = on_start
        self._interrupted = interrupted

    def run(
        self,
        views: Sequence[str] | None = None,
        *,
        full_refresh: Sequence[str] = (),
        until_version: Mapping[str, int] = MappingProxyType({}),
        strict: bool = False,
        run_id: str | None = None,
    ) -> Iterator[ViewReport]:
        """Run one epoch, yielding a report as each view is published, or left behind.

        Parameters
        ----------
        views : which views; all by default. A view whose upstream views are not among them goes to the newest epoch
            that all of those have reached.
        full_refresh : views to plan again and rebuild from their sources; views over them are rebuilt as well.
        until_version : Delta versions, by the names of sources. This run reads these up to there at most. New files of a folder
            that is named here are not read.
        strict : check what every operator gives, at the cost of Spark jobs (:mod:`.jobs.operators.contracts`). A view that
            fails is left behind.

        Raises
        ------
        DeclarationError : there is no such view or source; nothing was done.
        SourceError : a source has no such version, or a view has read further; nothing was done.
        EpochError : another run has some of the views for longer than there was time to wait; nothing was done.
        RelstateError : views were left behind; raised once all others have reached the epoch. That of the one view, or an
            EpochError that names them all.
        """
        run_id = run_id or uuid.uuid4().hex
        if self._warehouse.functions is not None:
            self._warehouse.functions.load()
        self._reads, self._left, self._ingested = SourceReads(), LeftBehind(), {}
        self._checked_keys.clear()
        self._strict = strict
        with (
            self._claims(run_id, "bringing up to date") as claims,
            cancellable_jobs(self._spark, self._runs.sessions) as self._cancel_jobs,
        ):
            state = self._warehouse.read()
            names = self._selected(state, views)
            self._until = named_sources(until_version, state.sources)
            opened = partial(self._reads.source, self._warehouse)
            check_reachable(to_rebuild(state, full_refresh).working, names, self._until, opened)
            for report in self._epoch(claims, state, names, full_refresh):
                yield self._with_malformed(report, state)
            # Views selected without all of their upstream views follow to an epoch that those have all reached.
            for name in names:
                if _outside_upstream(state.working, name, names) and name not in self._left:
                    yield from self._follow(claims, name)
            if any(source.indexes for source in state.sources.values()):
                refresh_indexes(self._spark, self._warehouse, self._warehouse.read(), self._reads, claims, self._until)
        self._left.raise_if_any()

    def _with_malformed(self, report: ViewReport, state: CatalogState) -> ViewReport:
        """The report of a view with what this run has read of folders and could not take for rows."""
        view = state.working.views.get(report.view)
        reads = () if view is None else view.reads  # one that another run has made since, and left unfinished
        found = {name: self._ingested[name] for name in reads if name in self._ingested and self._ingested[name].malformed}
        remarks = tuple(
            f"{name}: {read.malformed:,} of {read.malformed + read.rows:,} records are malformed; they are in "
            f"{table_reference(read.malformed_path)}"
            for name, read in found.items()
        )
        return replace(report, malformed_records=sum(read.malformed for read in found.values()), remarks=remarks)

    def _claims(self, run_id: str, doing: str) -> Claims:
        return Claims(
            self._warehouse,
            run_id,
            doing,
            wait_seconds=self._wait_seconds,
            on_wait=self._on_wait,
            interrupted=self._interrupted,
        )

    def _selected(self, state: CatalogState, views: Sequence[str] | None) -> list[str]:
        order = topological(state.working)
        if views is None:
            return order
        self._check_there(state, views)
        return [v for v in order if v in views]

    @staticmethod
    def _check_there(state: CatalogState, views: Sequence[str]) -> None:
        unknown = [v for v in views if v not in state.views]
        if unknown:
            known = ", ".join(sorted(state.views)) or "none"
            raise DeclarationError(f"no materialized view named {', '.join(unknown)}; there are {known}")

    # -- an epoch that an earlier run left unfinished -------------------------------------------------------------

    def _settle(self, claims: Claims, dead: Claim, but: Collection[str]) -> Iterator[ViewReport]:
        """Publish what views have committed of an epoch whose run died. What they had not, the next epoch computes."""
        own = claims.claim(dead.views, dead.epoch)
        try:
            state = self._catalog.update(lambda newest: taken_over(newest, dead, own))
        except Claimed:
            return  # another run settles it
        epoch = dead.epoch
        assert epoch is not None
        working, left = state.working, LeftBehind()
        versions, reached = _versions_seen(working, epoch), dict[str, Reached]()
        for name in [n for n in topological(working) if n in epoch.views and n not in but]:
            view = working.views[name]
            if epoch.epoch in view.epochs:
                continue
            inputs = self._runs.inputs(working, view, epoch, self._reads, versions)
            try:
                done = self._runs.bring(
                    working, view, epoch, inputs, state.versions_at(name), {}, claims.check, only_committed=True
                )
            except Exception as error:
                # It takes part in the next epoch, which says what becomes of it.
                self._stop_for(error)
                left.failed(view, error, epoch.epoch, _identities(epoch.pins, view))
                continue
            if done is not None:
                reached[name], versions[name] = done.reached, done.reached.versions
                yield done.report
        claims.noted(self._catalog.update(lambda newest: completed(newest, own.id, reached, left.problems)))

    # -- an epoch -------------------------------------------------------------------------------------------------

    def _free(
        self, claims: Claims, names: Collection[str], but: Collection[str] = (), state: CatalogState | None = None
    ) -> Generator[ViewReport, None, CatalogState]:
        """A state in which nobody holds some views; what dead runs have left of them is settled.

        ``state`` is one that was read just now; the newest without one.
        """
        while True:
            state = claims.free(names, state)
            dead = in_the_way(state, claims.id, names)
            if not dead:
                return state
            state = None
            claims.without_dead(names)
            for claim in dead:
                if claim.epoch is not None:
                    yield from self._settle(claims, claim, but)

    def _epoch(
        self, claims: Claims, state: CatalogState, names: Sequence[str], full_refresh: Sequence[str] = ()
    ) -> Iterator[ViewReport]:
        """Bring views, upstream first, to a new epoch: those that are not selected without views which they read."""
        for attempt in range(_ATTEMPTS):
            rebuilt = with_dependents(state, full_refresh)
            base = yield from self._free(claims, {*names, *rebuilt}, rebuilt, None if attempt else state)
            self._check_there(base, names)
            state, epoch, reports = self._looked_at(to_rebuild(base, full_refresh), names, claims)
            try:
                if epoch.views:
                    state, epoch = self._begun(claims, base, state, epoch)
                else:
                    well = [report.view for report in reports if not report.problem]
                    state = self._catalog.commit(base, state, partial(self._with_problems, well))
            except ConcurrentCatalogChange:
                # Another run, or somebody who declares views, was faster: what was looked at is looked at again.
                if attempt == _ATTEMPTS - 1:
                    raise
                self._left = LeftBehind()
                continue
            failpoints.reached("after_begin")
            yield from reports
            if epoch.views:
                yield from self._finish(claims, state, epoch)
            return

    def _with_problems(self, well: Sequence[str], state: CatalogState) -> CatalogState:
        """The state with the reasons for which views were left behind, and without those of views that are well."""
        return left_behind(solved(state, well), self._left.problems)

    def _begun(
        self, claims: Claims, base: CatalogState, state: CatalogState, epoch: EpochEntry
    ) -> tuple[CatalogState, EpochEntry]:
        """Begin an epoch on top of whatever others have written since its views were looked at.

        Raises
        ------
        ConcurrentCatalogChange : somebody has claimed, changed or dropped one of the views. Nothing was written.
        """
        ours = state.working.views

        def begin(newest: CatalogState) -> CatalogState:
            theirs = newest.working.views
            changed = [name for name in epoch.views if theirs.get(name) != ours[name]]
            if changed:
                raise ConcurrentCatalogChange(
                    f"another run changed {', '.join(changed)} at the same time; nothing was written, run again"
                )
            return begun(newest, claims.claim(epoch.views, epoch))

        state = self._catalog.commit(base, state, begin)
        numbered = state.claims[claims.id].epoch
        assert numbered is not None
        return state, numbered

    def _looked_at(
        self, state: CatalogState, names: Sequence[str], claims: Claims
    ) -> tuple[CatalogState, EpochEntry, list[ViewReport]]:
        """What an epoch of some views is to do.

        Returns
        -------
        The state with what is planned; the epoch, of no views where none may change; reports of views that are not in it.
        """
        reports: list[ViewReport] = []
        state = self._planned(state, names, reports)
        working = state.working
        with_upstream = [v for v in names if not _outside_upstream(working, v, names)]
        read = {name for view in with_upstream for name in working.views[view].reads if name in working.sources}
        sources = {name: self._reads.source(self._warehouse, working.sources[name]) for name in read}
        # Another run may have read further since this one began.
        check_reachable(working, with_upstream, self._until)
        folders = {name: working.sources[name] for name in read - {*self._until} if working.sources[name].folder is not None}
        ingested, unread = ingest_all(self._spark, folders, sources, self._on_start)
        self._ingested |= ingested
        readable = {name: source for name, source in sources.items() if name not in unread}
        pins, unpinned = look_at(readable, working.last_pins, self._until)
        unpinned |= unread
        epoch = EpochEntry(UNNUMBERED, pins, (), claims.run_id, instant=read_clock(self._clock))
        able = self._able(working, epoch, with_upstream, unpinned, reports)
        epoch = replace(epoch, views=tuple(able))
        stale = _stale(working, epoch)
        if not stale:
            reports += [unchanged(state, state.views[view]) for view in able]
            return state, replace(epoch, views=()), reports
        state, epoch = choose_refresh(state, epoch, stale, lambda view: self._inputs(state.working, view, epoch))
        return state, epoch, reports

    def _planned(self, state: CatalogState, names: Sequence[str], reports: list[ViewReport]) -> CatalogState:
        """Plan views again that are to be built, on their inputs as they are now."""
        for name in names:
            view = state.working.views[name]
            if view.last_epoch is not None:
                continue
            try:
                session = self._runs.session(view, Workload.FULL)
                state = ViewPlanner(session, self._warehouse).planned_again(state, view)
            except Exception as error:
                self._stop_for(error)
                reports.append(self._left.failed(view, error, None, {}))
        return state

    def _able(
        self,
        state: CatalogState,
        epoch: EpochEntry,
        names: Sequence[str],
        unpinned: Mapping[str, Exception],
        reports: list[ViewReport],
    ) -> list[str]:
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
                reports.append(self._left.failed(view, error, None, _identities(epoch.pins, view)))
        for name, upstream in waiting(state, names, self._left.problems).items():
            reports.append(self._left.waits(state.views[name], upstream))
        return [name for name in names if name not in self._left]

    def _check_inputs(self, state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> None:
        """Raise for whatever a view cannot read, and if its own last epoch is lost."""
        check_tables(self._warehouse, state, view)
        if view.functions:
            check_functions(view, self._runs.session(view, Workload.FULL), self._warehouse.functions)
        inputs = self._inputs(state, view, epoch)
        found = inputs.sizes.check()
        keyed = [n for n in view.reads if n in state.sources and state.sources[n].primary_key]
        if keyed:
            session = self._runs.session(view, Workload.FULL)
            check_primary_keys(session, state, inputs, keyed, found, self._checked_keys)

    def _inputs(self, state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> EpochInputs:
        return self._runs.inputs(state, view, epoch, self._reads)

    def _follow(self, claims: Claims, name: str) -> Iterator[ViewReport]:
        """Bring a view to the newest epoch that all views which it reads have reached."""
        for attempt in range(_ATTEMPTS):
            state = yield from self._free(claims, [name])
            self._check_there(state, [name])
            working = state.working
            view = working.views[name]
            reachable = reachable_epochs(working, view, self._until)
            if not reachable and view.last_epoch is None:
                # The views it reads have reached no epoch together: the first epoch of this one is their next.
                yield from self._epoch(claims, state, with_upstream_views(working, name))
                return
            if not reachable:
                yield unchanged(state, view)
                return
            target = working.epochs[max(reachable)]
            try:
                pins = {**target.pins, **self._late_pins(working, view, target)}
                epoch = replace(target, pins=pins, views=(name,), run_id=claims.run_id)
                self._check_inputs(working, view, epoch)
            except Exception as error:
                self._stop_for(error)
                yield self._left.failed(view, error, target.epoch, _identities(target.pins, view))
                self._catalog.update(partial(self._with_problems, []))
                return
            try:
                begun_with, epoch = self._begun(claims, state, state, epoch)
            except ConcurrentCatalogChange:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            yield from self._finish(claims, begun_with, epoch)
            return

    def _late_pins(self, state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> dict[str, Pin]:
        """Pins for sources that no view at an epoch has read yet.

        They are pinned as another run does that brings views to that epoch, or as the next epoch that knows them has them, so
        that no pin ever goes back.
        """
        pins: dict[str, Pin] = {}
        for name in view.reads:
            if name in state.sources and name not in epoch.pins:
                others = [
                    *epochs_numbered(state, epoch.epoch),
                    *(state.epochs[n] for n in sorted(state.epochs) if n > epoch.epoch),
                ]
                known = (other.pins.get(name) for other in others)
                pins[name] = next((p for p in known if p is not None), None) or self._reads.source(
                    self._warehouse, state.sources[name]
                ).pin(None, self._until.get(name))
        return pins

    def _finish(self, claims: Claims, state: CatalogState, epoch: EpochEntry) -> Iterator[ViewReport]:
        """Bring every view of an epoch to it that can be, and complete the epoch."""
        working, reached = state.working, dict[str, Reached]()
        versions = _versions_seen(working, epoch)
        views = [working.views[n] for n in epoch.views if epoch.epoch not in working.views[n].epochs]
        self._reads.shared = SharedReads.of(working, epoch, views)
        for ended in self._side_by_side(state, working, views, epoch, versions, claims.check):
            if isinstance(ended, Done):
                reached[ended.report.view] = ended.reached
                yield ended.report
            else:
                yield ended
        self._reads.shared = SharedReads()
        failpoints.reached("before_complete")
        claims.noted(self._catalog.update(lambda newest: completed(newest, claims.id, reached, self._left.problems)))

    def _side_by_side(
        self,
        state: CatalogState,
        working: CatalogState,
        views: Sequence[ViewEntry],
        epoch: EpochEntry,
        versions: dict[str, ViewVersions],
        fence: Fence,
    ) -> Iterator[Done | ViewReport]:
        """Run views as soon as those they read are done, several at a time: most of a small epoch is planning."""
        pending = {view.name: view for view in views}
        tries = Counter[str]()
        running: dict[Future[Done | None], str] = {}
        moved: dict[str, tuple[int, int]] = {}
        with ThreadPoolExecutor(max_workers=self._parallel_views) as pool, self._stopped(running):
            while running or pending:
                for name, upstream_behind in waiting(working, list(pending), self._left.problems).items():
                    yield self._left.waits(pending.pop(name), upstream_behind)
                unfinished = {*pending, *running.values()}
                for name, view in list(pending.items()):
                    if not unfinished & (set(view.reads) - {name}):
                        upstream = {n: moved[n] for n in view.reads if n in moved}
                        # Its jobs are of the job group, and in the pool, that the caller has set.
                        bring = inheritable_thread_target(self._spark)(self._runs.bring)
                        # What is shared may have been on an executor that died.
                        reads = SourceReads() if tries[name] else self._reads
                        inputs = self._runs.inputs(working, view, epoch, reads, dict(versions))
                        seen = state.versions_at(name)
                        self._on_start(f"{name}: {'built' if view.last_epoch is None else 'brought'} to epoch {epoch.epoch}")
                        future = pool.submit(bring, working, view, epoch, inputs, seen, upstream, fence, strict=self._strict)
                        running[future] = name
                        del pending[name]
                for future in first_ended(running, self._runs.progress, self._on_start):
                    name = running.pop(future)
                    error = future.exception()
                    if isinstance(error, Exception):
                        self._stop_for(error)
                        view = working.views[name]
                        tries[name] += 1
                        if lost_an_executor(error) and tries[name] < _TRIES:
                            _log.warning("computing %s once more, an executor was lost: %s", name, reason_of(error))
                            pending[name] = view
                            continue
                        yield self._left.failed(view, error, epoch.epoch, _identities(epoch.pins, view))
                        continue
                    done = future.result()
                    assert done is not None
                    versions[name] = done.reached.versions
                    moved[name] = (done.report.rows_inserted, done.report.rows_deleted)
                    yield done

    @contextmanager
    def _stopped(self, running: Collection[Future[Done | None]]) -> Iterator[None]:
        """What was begun ends at once where the run is stopped from outside."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            stop(list(running), self._cancel_jobs)
            raise

    def _stop_for(self, error: Exception) -> None:
        """Raise what no view is to blame for: the run ends, and the next one settles the epoch."""
        self._interrupted()
        if isinstance(error, ConcurrentCatalogChange | ClaimLost):
            raise error
        ended = ends_the_run(error)
        if ended is not None:
            raise ended from error

    def compact(self, views: Sequence[str] | None = None) -> Iterator[CompactReport]:
        """Compact the state of views, beside whatever else runs: what an epoch would lose by it is not committed.

        Views of which state may have expired, or is of closed groups, are claimed meanwhile, as by a run.
        """
        lock = self._warehouse.maintenance_lock_path
        with maintenance_lock(lock, "compacting state", shared=True, wait_seconds=self._wait_seconds):
            state = self._warehouse.read()
            for name in self._selected(state, views):
                if state.views[name].last_epoch is not None:
                    yield self._compact(state, name)

    def _compact(self, state: CatalogState, name: str) -> CompactReport:
        session = self._runs.session(state.views[name], Workload.FULL)
        try:
            if state.views[name].expiry.until is None and not state.views[name].watermarks:
                return compact_view(session, self._warehouse, state, state.views[name])
            with self._claims(uuid.uuid4().hex, "expiring state of") as claims:
                state = claims.take([name])
                return compact_view(session, self._warehouse, state, state.views[name], is_claimed=True)
        except Exception as error:
            raise ends_the_run(error) or explained(name, None, error) from error

    def vacuum(
        self, views: Sequence[str] | None = None, *, epochs: int | None = None, hours: int = RETAINED_HOURS
    ) -> Iterator[VacuumReport]:
        """Delete the files of views, state and catalog that no retained epoch needs; see :func:`.jobs.epoch.vacuum.vacuum`.

        Raises
        ------
        EpochError : a run over these views, or a compaction, goes on for longer than there was time to wait.
        """
        lock, doing = self._warehouse.maintenance_lock_path, "deleting old files of"
        with (
            self._claims(uuid.uuid4().hex, doing) as claims,
            maintenance_lock(lock, doing, shared=False, wait_seconds=self._wait_seconds),
        ):
            state = self._warehouse.read()
            names = self._selected(state, views)
            # Nobody reads what is deleted: views over these go on from older epochs of them.
            state = claims.take(with_dependents(state, names))
            yield from vacuum(self._spark.newSession(), self._warehouse, state, names, epochs=epochs, hours=hours)

    def verify(self, views: Sequence[str] | None = None, *, sample: int | None = None) -> list[VerifyReport]:
        """Compare views, as of the last epoch each has reached, with their queries run in full, both ways.

        Parameters
        ----------
        sample : how many keys of each view are compared; all rows are without it.
        """
        if sample is not None and sample < 1:
            raise DeclarationError(f"a sample of {sample} keys says nothing: take 1 or more")
        state, spark = self._warehouse.read(), self._spark
        return [verify_view(spark, self._warehouse, state, state.views[n], sample) for n in self._selected(state, views)]

    def check(self, views: Sequence[str] | None = None, names: Collection[str] | None = None) -> list[CheckReport]:
        """Make the checks that views declare, on the last epoch that each view has reached.

        Parameters
        ----------
        names : of the checks; all by default.

        Raises
        ------
        DeclarationError : there is no such view, or a view has no such check.
        """
        state, found = self._warehouse.read(), list[CheckReport]()
        for name in self._selected(state, views):
            found += check_view(self._spark, self._warehouse, state, state.views[name], self._clock, names)
        return found

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
    if depends_on_time(view.plan):
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
