"""What the next epoch of a view would do as things are now: looked at without Spark, and without writing anything."""

from __future__ import annotations

from jobs.catalog.entries import EpochEntry, ViewEntry
from jobs.catalog.state import CatalogState
from jobs.epoch.pinned_sources import PinnedSources
from jobs.epoch.protocol import UNNUMBERED
from jobs.epoch.publish import written_by_driver
from jobs.epoch.shared_reads import SourceReads
from jobs.epoch.sizes import InputSizes
from jobs.epoch.source_lookups import SourceLookups
from jobs.epoch.stages import Stages, stages_of
from jobs.planner.nodes import depends_on_time
from jobs.sources.delta_source import look_at
from jobs.warehouse import Warehouse
from state_lib.errors import RelstateError
from state_lib.lake.table import OpenedTable
from state_lib.state_files import StateFiles


def next_epoch(warehouse: Warehouse, state: CatalogState, view: ViewEntry, *, most_tasks: int) -> Stages:
    """The stages of a view's next epoch.

    Views below it are taken as they are now, though the same epoch would change them first.

    Parameters
    ----------
    view : as the catalog has it, or at its beginning for what a rebuild would do.
    most_tasks : of a shuffle, as Spark is configured.

    Raises
    ------
    RelstateError : a source cannot be read, or not what changed in it.
    """
    sizes = next_inputs(warehouse, state, view)
    seen = state.versions_at(view.name)
    state_version = None if seen is None else seen.state_version
    known = sizes.of_view(StateFiles(warehouse.state_path(view)), state_version, seen)
    stages = stages_of(view, known, most_tasks=most_tasks, driver_writes=written_by_driver(view))
    if seen is None or seen.view_version is None:
        return stages
    return stages.into(OpenedTable(warehouse.view_path(view.name)).total_bytes(seen.view_version))


def next_inputs(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> InputSizes:
    """How much a view would read in its next epoch; raises as :func:`next_epoch` does."""
    reads = SourceReads()
    sources = {name: reads.source(warehouse, state.sources[name]) for name in view.reads if name in state.sources}
    pins, problems = look_at(sources, state.last_pins)
    for problem in problems.values():
        raise problem
    epoch = EpochEntry(UNNUMBERED, pins, (view.name,), "")
    below = {name: state.versions_at(name) for name in view.reads if name in state.views}
    versions = {name: found for name, found in below.items() if found is not None}
    pinned = PinnedSources(warehouse, state, view, epoch, reads)
    return InputSizes(pinned, SourceLookups(pinned), versions)


def is_nothing(view: ViewEntry, stages: Stages) -> bool:
    """Whether the next epoch finds nothing to do for a view."""
    sizes = stages.sizes
    return not sizes.is_backfill and not depends_on_time(view.plan) and all(read.is_nothing for read in sizes.reads)


def next_stages(warehouse: Warehouse, state: CatalogState, view: ViewEntry, *, most_tasks: int) -> tuple[str, ...]:
    """The stages of a view's next epoch, a line each; see :func:`next_epoch`."""
    try:
        stages = next_epoch(warehouse, state, view, most_tasks=most_tasks)
    except (RelstateError, OSError) as error:
        return (f"cannot run: {error}",)
    if is_nothing(view, stages):
        return ("nothing to do: nothing that it reads has changed",)
    return stages.lines()
