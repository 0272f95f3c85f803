"""Slices: epochs that each read some more files of a large view's source.

A slice is computed as any change is, from what it finds of new rows, and committed to the view's state alone. The view
reaches no epoch by it and nothing is published. The last slice is the epoch itself: it computes what is left together with
what has changed in the sources since the first slice, and publishes all of it. So a run that dies, or is stopped, loses one
slice, and the next run goes on behind the last one that was committed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from relstate_dagster.jobs.catalog.entries import EpochEntry, Slice, ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.plan.nodes import FullQuery, Scan, Window, walk
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.state_lib.constants import COMMIT_VERSION
from relstate_dagster.state_lib.tuning import tuning
from relstate_dagster.state_lib.units import bytes_shown


def is_large(total_bytes: int) -> bool:
    """Whether a source is large enough to build views over it in slices."""
    return 2 * total_bytes >= 3 * tuning().slice_bytes


def next_slice(inputs: EpochInputs) -> EpochEntry | None:
    """The epoch of the next slice of a view that is not built yet.

    Parameters
    ----------
    inputs : of the view, as of the epoch that would build all of it.

    Returns
    -------
    That epoch with fewer files of one source. ``None`` where the epoch itself is next: what is left is not more than a slice,
    or slices would cost too much or cannot be read.
    """
    view, epoch, built = inputs.view, inputs.epoch, inputs.since
    if built is None:
        if not _may_be_sliced(inputs):
            return None
        name = max(view.reads, key=lambda read: _bytes_of(inputs, read))
        number, pins, first = 1, epoch.pins, 0
    else:
        assert built.slice is not None
        name, number, pins = built.slice.source, built.slice.number + 1, built.pins
        first = pins[name].first_files or 0
    found = inputs.source(name).source.files(pins[name].whole)
    if not found.are_rows:
        return None
    total = found.total_bytes
    looked_up = sum(_bytes_of(inputs, node.relation) for node in walk(view.plan) if isinstance(node, Scan)) - total
    wanted = max(tuning().slice_bytes, total // tuning().slices, round(tuning().slice_lookups * looked_up))
    read = list(accumulate((file.bytes for file in found.files), initial=0))
    until = next((n for n, so_far in enumerate(read) if n > first and so_far - read[first] >= wanted), None)
    if until is None or 2 * (total - read[until]) < wanted:
        return None
    part = Slice(name, number, read[until], total)
    return replace(epoch, pins={**pins, name: replace(pins[name], first_files=until)}, slice=part)


def _bytes_of(inputs: EpochInputs, name: str) -> int:
    source = inputs.source(name)
    return source.source.totals(source.pin.whole)[0]


def _may_be_sliced(inputs: EpochInputs) -> bool:
    """Whether slices cost about as much as one backfill.

    Each source also has to know the rows of its files.
    """
    catalog, view = inputs.catalog, inputs.view
    # Slices are computed on several days.
    if view.strategy != "incremental" or view.plan.is_of_a_day or not all(name in catalog.sources for name in view.reads):
        return False
    # These compute again what they have computed, whole partitions or all of it, when rows come in.
    if not view.reads or any(isinstance(node, FullQuery | Window) for node in walk(view.plan)):
        return False
    sources = [inputs.source(name) for name in view.reads]
    return not any(COMMIT_VERSION in source.generated_columns or source.entry.is_changelog for source in sources)


def may_go_on(state: CatalogState, view: ViewEntry, epoch: EpochEntry) -> bool:
    """Whether the slices of a view are to go on where they are.

    Where it was left behind, and its sources have moved since, they are not: the row that could not be computed may be gone,
    which only the epoch itself sees.

    Parameters
    ----------
    epoch : with the sources as they are now.
    """
    built = view.built_until
    if built is None or state.views[view.name].problem is None:
        return True
    return all(pin.is_same(epoch.pins[name]) for name, pin in ((n, p.whole) for n, p in built.pins.items()))


def progress(part: Slice) -> str:
    """For people: which slice it is."""
    return f"slice {part.number}, up to {bytes_shown(part.bytes)} of {bytes_shown(part.total_bytes)} of {part.source}"


def built_so_far(view: ViewEntry) -> str:
    """For people: how far a view is that is built in slices."""
    built = view.built_until
    assert built is not None
    assert built.slice is not None
    return progress(built.slice)
