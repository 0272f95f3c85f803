"""Slices of large views in a run: begun, computed and committed one by one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import partial

from relstate_dagster.jobs.catalog.entries import EpochEntry
from relstate_dagster.jobs.catalog.protocol import check_unclaimed, to_rebuild, with_dependents
from relstate_dagster.jobs.catalog.state import CatalogState, ConcurrentCatalogChange
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.run.epochs import Epochs
from relstate_dagster.jobs.run.run_context import RunContext
from relstate_dagster.jobs.run.slice_planner import SlicePlanner, SlicesLost
from relstate_dagster.jobs.view_epoch.reports import ViewReport


class SliceRun:
    """Builds large views in slices.

    Parameters
    ----------
    epochs : of the run.
    """

    def __init__(self, run: RunContext, epochs: Epochs) -> None:
        self._run = run
        self._epochs = epochs
        self._catalog = run.warehouse.catalog
        self._slices = SlicePlanner(run)

    def build(
        self, state: CatalogState, names: Sequence[str], full_refresh: Sequence[str]
    ) -> Generator[ViewReport, None, tuple[CatalogState, Sequence[str]]]:
        """Build large views in slices, but for the last one.

        The epoch that follows computes that.

        Returns
        -------
        The resulting state, and the remaining work of that epoch's ``full_refresh``. Reports are of views that are left
        behind.
        """
        if full_refresh:
            if not any(self._slices.is_large(state, state.views[name]) for name in with_dependents(state, full_refresh)):
                return state, full_refresh
            state = yield from self._to_rebuild(state, names, full_refresh)
        for name in names:
            while name not in self._run.left:
                known = state.working.views.get(name)
                if known is None or not self._slices.is_next(state, known):
                    break
                state = yield from self._epochs.acquire_views([name])
                try:
                    following = self._next_slice(state, name)
                    if following is None:
                        break
                    begun_with, epoch = self._epochs.begin(state, *following)
                except SlicesLost as lost:
                    self._start_over(name, lost)
                except ConcurrentCatalogChange:
                    pass  # another run or an edit was faster: looked at again
                else:
                    yield from (report for report in self._epochs.finish(begun_with, epoch) if report.problem)
                    failpoints.reached("after_slice")
                state = self._run.warehouse.read()
        return state, ()

    def _to_rebuild(
        self, state: CatalogState, names: Sequence[str], full_refresh: Sequence[str]
    ) -> Generator[ViewReport, None, CatalogState]:
        """Mark views to be rebuilt, once they are free.

        An epoch that another run completes takes the mark away.
        """
        while True:
            rebuilt = with_dependents(state, full_refresh)
            state = yield from self._epochs.acquire_views({*names, *rebuilt}, rebuilt)
            with suppress(ConcurrentCatalogChange):
                return self._catalog.update(partial(self._marked, rebuilt, full_refresh))

    def _marked(self, rebuilt: Sequence[str], full_refresh: Sequence[str], newest: CatalogState) -> CatalogState:
        check_unclaimed(newest, self._run.claims.id, rebuilt)
        return to_rebuild(newest, full_refresh)

    def _start_over(self, name: str, lost: SlicesLost) -> None:
        """Forget slices of a view whose inputs cannot be read any more."""
        self._run.tell(f"{name}: starts over, {lost}")

        def restarted(newest: CatalogState) -> CatalogState:
            check_unclaimed(newest, self._run.claims.id, [name])
            view = newest.working.views.get(name)
            return newest if view is None or view.built_until is None else newest.with_rebuild(view.restarted())

        with suppress(ConcurrentCatalogChange):  # another run has it: it is looked at again once that is done
            self._catalog.update(restarted)

    def _next_slice(self, state: CatalogState, name: str) -> tuple[CatalogState, EpochEntry] | None:
        """The next slice of a view, and the state that it begins on.

        ``None`` where the epoch that follows is next, or is to say why the view cannot be computed.
        """
        try:
            found = self._slices.following(state, name)
            if found is not None:
                working, epoch = found[0].working, found[1]
                self._run.check_inputs(working, working.views[name], epoch)
        except SlicesLost:
            raise
        except Exception as error:
            self._run.raise_if_fatal(error)
            return None
        return found
