"""Steps of a run that change the catalog: an epoch begins, ends, or is settled.

An epoch e is a barrier. It begins with a catalog commit that pins a version of every source. Then each view, upstream
first, makes one state commit and publishes. It ends with a catalog commit that records the versions of every view's tables
(:mod:`.jobs.catalog.protocol`). A view that cannot be computed is left behind, alone: the others complete the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from relstate_dagster.jobs.catalog.entries import Claim, EpochEntry, ViewEntry
from relstate_dagster.jobs.catalog.protocol import (
    UNNUMBERED,
    Claimed,
    ViewProgress,
    begun,
    blocked_by,
    clear_errors,
    completed,
    conflicting_claims,
    epochs_numbered,
    left_behind,
    taken_over,
    to_rebuild,
    with_dependents,
)
from relstate_dagster.jobs.catalog.relations import outside_upstream, topological, with_upstream_views
from relstate_dagster.jobs.catalog.state import CatalogState, ConcurrentCatalogChange
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.engine.instants import read_clock
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.registration.view_planner import ViewPlanner
from relstate_dagster.jobs.run.failed_views import FailedViews
from relstate_dagster.jobs.run.freshness import views_with_new_input
from relstate_dagster.jobs.run.ingest import ingest_all
from relstate_dagster.jobs.run.parallel_views import run_views_in_parallel
from relstate_dagster.jobs.run.run_context import RunContext, identities
from relstate_dagster.jobs.run.until_version import check_reachable, reachable_epochs
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.sources.protocol import resolve_pins
from relstate_dagster.jobs.view_epoch.reports import ViewReport, unchanged
from relstate_dagster.jobs.view_epoch.shared_reads import SharedReads
from relstate_dagster.jobs.view_epoch.view_run import Advanced
from relstate_dagster.state_lib.errors import DeclarationError

#: How often an epoch is begun where others are faster every time.
_ATTEMPTS: Final = 20


class Epochs:
    """The epochs of one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._claims = run.claims
        self._catalog = run.warehouse.catalog

    def _finish_dead_run(self, dead: Claim, but: Collection[str]) -> Iterator[ViewReport]:
        """Publish committed change sets of a dead run.

        The next epoch computes the rest.
        """
        own = self._claims.claim(dead.views, dead.epoch)
        try:
            state = self._catalog.update(lambda newest: taken_over(newest, dead, own))
        except Claimed:
            return  # another run settles it
        epoch = dead.epoch
        assert epoch is not None
        working, left = state.working, FailedViews()
        versions, reached = working.versions_in(epoch), dict[str, ViewProgress]()
        for name in [n for n in topological(working) if n in epoch.views and n not in but]:
            view = working.views[name]
            if epoch.epoch in view.epochs:
                continue
            inputs = self._run.inputs(working, view, epoch, versions)
            try:
                done = self._run.runs.advance_view(
                    working, view, epoch, inputs, state.versions_at(name), {}, self._claims.check, only_committed=True
                )
            except Exception as error:
                # It takes part in the next epoch, which says what becomes of it.
                self._run.raise_if_fatal(error)
                left.failed(view, error, epoch.epoch, identities(epoch.pins, view))
                continue
            if done is not None:
                reached[name], versions[name] = done.reached, done.reached.versions
                if epoch.slice is None:
                    yield done.report
        self._claims.record(self._catalog.update(lambda newest: completed(newest, own.id, reached, left.problems)))

    def acquire_views(
        self, names: Collection[str], but: Collection[str] = (), state: CatalogState | None = None
    ) -> Generator[ViewReport, None, CatalogState]:
        """Claim views, after the epochs of dead runs that held them are settled.

        ``state`` is one that was read just now; the newest without one.
        """
        while True:
            state = self._claims.acquire_views(names, state)
            dead = conflicting_claims(state, self._claims.id, names)
            if not dead:
                return state
            state = None
            self._claims.without_dead(names)
            for claim in dead:
                if claim.epoch is not None:
                    yield from self._finish_dead_run(claim, but)

    def start_epoch(self, state: CatalogState, names: Sequence[str], full_refresh: Sequence[str] = ()) -> Iterator[ViewReport]:
        """Bring views, upstream first, to a new epoch.

        Selected views whose upstream views are not selected are left out.
        """
        for attempt in range(_ATTEMPTS):
            rebuilt = with_dependents(state, full_refresh)
            base = yield from self.acquire_views({*names, *rebuilt}, rebuilt, None if attempt else state)
            check_there(base, names)
            state, epoch, reports = self._pin_sources(to_rebuild(base, full_refresh), names)
            try:
                if epoch.views:
                    state, epoch = self.begin(base, state, epoch)
                else:
                    well = [report.view for report in reports if not report.problem]
                    state = self._catalog.commit(base, state, partial(self._with_problems, well))
            except ConcurrentCatalogChange:
                # Another run, or somebody who declares views, was faster: what was looked at is looked at again.
                if attempt == _ATTEMPTS - 1:
                    raise
                self._run.left = FailedViews()
                continue
            failpoints.reached("after_begin")
            yield from reports
            if epoch.views:
                yield from self.finish(state, epoch)
            return

    def _with_problems(self, well: Sequence[str], state: CatalogState) -> CatalogState:
        """The state with the errors of failed views alone."""
        return left_behind(clear_errors(state, well), self._run.left.problems)

    def begin(self, base: CatalogState, state: CatalogState, epoch: EpochEntry) -> tuple[CatalogState, EpochEntry]:
        """Begin an epoch on top of the newest state.

        Raises
        ------
        ConcurrentCatalogChange : another run has claimed, changed or dropped one of the views. Nothing was written.
        """
        ours = state.working.views

        def begin(newest: CatalogState) -> CatalogState:
            theirs = newest.working.views
            changed = [name for name in epoch.views if theirs.get(name) != ours[name]]
            if changed:
                raise ConcurrentCatalogChange(
                    f"another run changed {', '.join(changed)} at the same time; nothing was written, run again"
                )
            return begun(newest, self._claims.claim(epoch.views, epoch))

        state = self._catalog.commit(base, state, begin)
        numbered = state.claims[self._claims.id].epoch
        assert numbered is not None
        return state, numbered

    def _pin_sources(self, state: CatalogState, names: Sequence[str]) -> tuple[CatalogState, EpochEntry, list[ViewReport]]:
        """Pin sources, and plan an epoch of some views.

        Returns
        -------
        The state with what is planned; the epoch, of no views where none may change; reports of views that are not in it.
        """
        reports: list[ViewReport] = []
        state = self._planned(state, names, reports)
        working = state.working
        with_upstream = [v for v in names if not outside_upstream(working, v, names)]
        read = {name for view in with_upstream for name in working.views[view].reads if name in working.sources}
        sources = {name: self._run.source(working.sources[name]) for name in read}
        # Another run may have read further since this one began.
        check_reachable(working, with_upstream, self._run.until)
        folders = {
            name: working.sources[name] for name in read - {*self._run.until} if working.sources[name].folder is not None
        }
        ingested, unread = ingest_all(self._run.spark, folders, sources, self._run.tell)
        self._run.ingested |= ingested
        readable = {name: source for name, source in sources.items() if name not in unread}
        pins, unpinned = resolve_pins(readable, working.last_pins, self._run.until)
        unpinned |= unread
        epoch = EpochEntry(UNNUMBERED, pins, (), self._claims.run_id, instant=read_clock(self._run.clock))
        able = self._able(working, epoch, with_upstream, unpinned, reports)
        epoch = replace(epoch, views=tuple(able))
        may_change = views_with_new_input(working, epoch)
        if not may_change:
            reports += [unchanged(state, state.views[view]) for view in able]
            return state, replace(epoch, views=()), reports
        return state, epoch, reports

    def _planned(self, state: CatalogState, names: Sequence[str], reports: list[ViewReport]) -> CatalogState:
        """Plan views again that are to be built, on their inputs as they are now."""
        for name in names:
            view = state.working.views[name]
            if view.last_epoch is not None:
                continue
            try:
                with self._run.runs.pool.lend(view, Workload.FULL) as session:
                    state = ViewPlanner(session, self._run.warehouse).planned_again(state, view)
            except Exception as error:
                self._run.raise_if_fatal(error)
                reports.append(self._run.failed(view, error))
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
            if name in self._run.left:
                continue
            try:
                for source in view.reads:
                    if source in unpinned:
                        raise unpinned[source]
                self._run.check_inputs(state, view, epoch)
            except Exception as error:
                self._run.raise_if_fatal(error)
                reports.append(self._run.failed(view, error, None, epoch.pins))
        for name, upstream in blocked_by(state, names, self._run.left.problems).items():
            reports.append(self._run.left.waits(state.views[name], upstream))
        return [name for name in names if name not in self._run.left]

    def resume_view(self, name: str) -> Iterator[ViewReport]:
        """Bring a view to the newest epoch that all views which it reads have reached."""
        for attempt in range(_ATTEMPTS):
            state = yield from self.acquire_views([name])
            check_there(state, [name])
            working = state.working
            view = working.views[name]
            reachable = reachable_epochs(working, view, self._run.until)
            if not reachable and view.last_epoch is None:
                # The views it reads have reached no epoch together: the first epoch of this one is their next.
                yield from self.start_epoch(state, with_upstream_views(working, name))
                return
            if not reachable:
                yield unchanged(state, view)
                return
            target = working.epochs[max(reachable)]
            try:
                pins = {**target.pins, **self._late_pins(working, view, target)}
                epoch = replace(target, pins=pins, views=(name,), run_id=self._claims.run_id)
                self._run.check_inputs(working, view, epoch)
            except Exception as error:
                self._run.raise_if_fatal(error)
                yield self._run.failed(view, error, target.epoch, target.pins)
                self._catalog.update(partial(self._with_problems, []))
                return
            try:
                begun_with, epoch = self.begin(state, state, epoch)
            except ConcurrentCatalogChange:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            yield from self.finish(begun_with, epoch)
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
                pin = next((p for p in known if p is not None), None)
                pins[name] = pin or self._run.source(state.sources[name]).pin(None, self._run.until.get(name))
        return pins

    def finish(self, state: CatalogState, epoch: EpochEntry) -> Iterator[ViewReport]:
        """Bring every view of an epoch to it that can be, and complete the epoch."""
        working, reached = state.working, dict[str, ViewProgress]()
        views = [working.views[n] for n in epoch.views if epoch.epoch not in working.views[n].epochs]
        self._run.reads.shared = SharedReads.of(working, epoch, views)
        for ended in run_views_in_parallel(self._run, state, epoch, views):
            if isinstance(ended, Advanced):
                reached[ended.report.view] = ended.reached
                yield ended.report
            else:
                yield ended
        self._run.reads.shared = SharedReads()
        failpoints.reached("before_complete")
        self._claims.record(
            self._catalog.update(lambda newest: completed(newest, self._claims.id, reached, self._run.left.problems))
        )


def check_there(state: CatalogState, views: Sequence[str]) -> None:
    """Raise where there are no such views."""
    unknown = [v for v in views if v not in state.views]
    if unknown:
        known = ", ".join(sorted(state.views)) or "none"
        raise DeclarationError(f"no materialized view named {', '.join(unknown)}; there are {known}")
