"""Preview of a view's next epoch, without Spark and without writing anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry
from relstate_dagster.jobs.catalog.protocol import UNNUMBERED
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.plan.nodes import depends_on_time
from relstate_dagster.jobs.run.freshness import new_files
from relstate_dagster.jobs.sources.protocol import resolve_pins
from relstate_dagster.jobs.view_epoch.pinned_sources import PinnedSources
from relstate_dagster.jobs.view_epoch.plan import plan_view_epoch
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads
from relstate_dagster.jobs.view_epoch.sizes import InputSizes
from relstate_dagster.jobs.view_epoch.source_lookups import SourceLookups
from relstate_dagster.jobs.view_epoch.steps import ViewEpochPlan
from relstate_dagster.jobs.view_epoch.view_epoch import state_chain
from relstate_dagster.state_lib.errors import RelstateError
from relstate_dagster.state_lib.state_files import StateFiles


class NextEpoch:
    """The next epoch of views.

    Views below them are taken as they are now, though that epoch would change them first.

    Parameters
    ----------
    names : of what the views read. Each source is looked at once.
    most_tasks : of a shuffle, as Spark is configured.
    """

    def __init__(self, warehouse: Warehouse, state: CatalogState, names: Iterable[str], *, most_tasks: int) -> None:
        self._warehouse = warehouse
        self._state = state
        self._most_tasks = most_tasks
        self._reads = SourceReads()
        sources = {name: self._reads.source(warehouse, state.sources[name]) for name in names if name in state.sources}
        self._pins, self._problems = resolve_pins(sources, state.last_pins)
        #: Which files of folders that are sources it would read first.
        self.new_files = new_files(state, sources)

    def inputs(self, view: ViewEntry) -> InputSizes:
        """Sizes of a view's inputs; raises as :meth:`plan` does."""
        for name in view.reads:
            if name in self._problems:
                raise self._problems[name]
        epoch = EpochEntry(UNNUMBERED, self._pins, (view.name,), "")
        below = {name: self._state.versions_at(name) for name in view.reads if name in self._state.views}
        versions = {name: found for name, found in below.items() if found is not None}
        pinned = PinnedSources(self._warehouse, self._state, view, epoch, self._reads)
        return InputSizes(pinned, SourceLookups(pinned), versions)

    def plan(self, view: ViewEntry) -> ViewEpochPlan:
        """The plan of a view's next epoch.

        For a view at its beginning: of a rebuild.

        Raises
        ------
        RelstateError, OSError : a source cannot be read, or not what changed in it.
        """
        seen = self._state.versions_at(view.name)
        last = self._state.last_of(view)
        files = StateFiles(self._warehouse.state_path(view))
        before = None if last is None else last.versions.get(view.name)
        # As it has been compacted since.
        state_version = None if before is None else state_chain(files, view).since(before.state_commit).newest
        sizes = self.inputs(view).of_view(files, state_version, seen)
        if seen is not None and seen.view_version is not None:
            target, replaces = self._warehouse.target(view.name), view.last_epoch is None
            sizes = replace(sizes, published=target.found(view.declared_table, seen.view_version, replaces=replaces))
        return plan_view_epoch(view, sizes, most_tasks=self._most_tasks)


def is_nothing(view: ViewEntry, plan: ViewEpochPlan) -> bool:
    """Whether the next epoch finds nothing to do for a view."""
    is_started = view.last_epoch is not None or view.built_until is not None
    return is_started and not depends_on_time(view.plan) and all(read.is_nothing for read in plan.reads)


def next_steps(warehouse: Warehouse, state: CatalogState, view: ViewEntry, *, most_tasks: int) -> tuple[str, ...]:
    """The steps of a view's next epoch, a line each; see :class:`NextEpoch`."""
    following = NextEpoch(warehouse, state, view.reads, most_tasks=most_tasks)
    try:
        plan = following.plan(view)
    except (RelstateError, OSError) as error:
        return (f"cannot run: {error}",)
    first = tuple(f"reads {files} of {name} into its table first" for name, files in following.new_files.items())
    if is_nothing(view, plan):
        return first or ("nothing to do: nothing that it reads has changed",)
    return (*first, *plan.lines())
