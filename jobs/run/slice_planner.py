"""The next slice of a view, by the catalog and the logs of its sources."""

from __future__ import annotations

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry
from relstate_dagster.jobs.catalog.protocol import UNNUMBERED
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.engine.instants import read_clock
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.registration.view_planner import ViewPlanner
from relstate_dagster.jobs.run.run_context import RunContext
from relstate_dagster.jobs.run.slices import is_large, may_go_on, next_slice
from relstate_dagster.jobs.sources.protocol import resolve_pins
from relstate_dagster.jobs.view_epoch.view_epoch import state_chain
from relstate_dagster.state_lib.errors import RelstateError, SourceError, StateError, first_line
from relstate_dagster.state_lib.state_files import StateFiles


class SlicesLost(Exception):
    """Slices of a view, or their inputs, are gone or do not fit."""


class SlicePlanner:
    """Plans the slices of views for one run."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    def is_next(self, state: CatalogState, view: ViewEntry) -> bool:
        """Whether a view may continue with a slice.

        One that is not built costs a look at its sources.
        """
        return view.last_epoch is None and (view.built_until is not None or self.is_large(state, view))

    def is_large(self, state: CatalogState, view: ViewEntry) -> bool:
        """Whether a source of a view is large; false if unknown."""
        entries = [state.sources[name] for name in view.reads if name in state.sources]
        try:
            return any(is_large(self._run.source(entry).totals()[0]) for entry in entries)
        except (RelstateError, OSError):
            return False

    def following(self, state: CatalogState, name: str) -> tuple[CatalogState, EpochEntry] | None:
        """The epoch of a view's next slice, and the state with its plan.

        Nothing is written.

        Returns
        -------
        ``None`` where the view's next epoch is to compute all that is left.

        Raises
        ------
        SlicesLost : the view has to be built from its first slice again.
        """
        view = state.working.views[name]
        if view.last_epoch is not None or any(read not in state.sources for read in view.reads):
            return None
        sources = {read: self._run.source(state.sources[read]) for read in view.reads}
        pins, unpinned = resolve_pins(sources, state.working.last_pins, self._run.until)
        if unpinned:
            return None
        epoch = EpochEntry(UNNUMBERED, pins, (name,), self._run.claims.run_id, instant=read_clock(self._run.clock))
        if view.built_until is not None:
            self._check_readable(state, view, epoch)
            if not may_go_on(state, view, epoch):
                return None
        with self._run.runs.pool.lend(view, Workload.FULL) as session:
            state = ViewPlanner(session, self._run.warehouse).planned_again(state, view)
        found = next_slice(self._run.inputs(state.working, state.working.views[name], epoch))
        return None if found is None else (state, found)

    def _check_readable(self, state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> None:
        """Raise unless the rest of a view can be computed from what its slices read."""
        assert view.built_until is not None
        for name, pin in view.built_until.pins.items():
            if self._run.until.get(name, pin.version) < pin.version:
                raise SlicesLost(f"its slices have read {name} up to version {pin.version}")
        committed = view.built_until.versions[view.name].state_commit
        try:
            state_chain(StateFiles(self._run.warehouse.state_path(view)), view).since(committed)
            self._run.inputs(state.working, view, epoch).check()
        except (SourceError, StateError) as error:
            raise SlicesLost(first_line(error)) from error
