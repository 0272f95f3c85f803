"""Views that are behind what they read, by the catalog and logs alone, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry
from relstate_dagster.jobs.catalog.relations import topological
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.instants import utc_now
from relstate_dagster.jobs.registration.planned_by import another_planner
from relstate_dagster.jobs.sources.folder_files import FolderFiles
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.sources.protocol import resolve_pins
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads
from relstate_dagster.state_lib.errors import RelstateError


@dataclass(frozen=True, slots=True)
class NewestSources:
    """Sources as the next run would pin them; each is looked at once.

    Parameters
    ----------
    pins, errors : of those that can be looked at, and why the others cannot.
    new_files : new files of folders, or why they cannot be listed.
    reads : the readers that looked.
    """

    pins: Mapping[str, Pin]
    errors: Mapping[str, Exception] = field(default_factory=dict)
    new_files: Mapping[str, str] = field(default_factory=dict)
    reads: SourceReads = field(default_factory=SourceReads)

    @classmethod
    def of(
        cls,
        warehouse: Warehouse,
        state: CatalogState,
        names: Iterable[str],
        until_version: Mapping[str, int] = MappingProxyType({}),
    ) -> NewestSources:
        """Look at sources among some names.

        Parameters
        ----------
        until_version : the versions that the run reads some of them up to at most.
        """
        reads, known = SourceReads(), {name for name in names if name in state.sources}
        sources = {name: reads.source(warehouse, state.sources[name]) for name in known}
        pins, errors = resolve_pins(sources, state.last_pins, until_version)
        return cls(pins, errors, new_files(state, known - set(until_version)), reads)

    def identity(self, name: str) -> str | None:
        """Names the commit that would be pinned of a source, and its new files.

        ``None`` if it cannot be looked at.
        """
        pin, files = self.pins.get(name), self.new_files.get(name)
        if files is None:
            return None if pin is None else pin.identity
        return f"{name if pin is None else pin.identity} and {files}"


def new_files(state: CatalogState, names: Iterable[str]) -> dict[str, str]:
    """New files of sources that are folders, or why they cannot be listed."""
    found = {}
    for name in names:
        entry = state.sources.get(name)
        if entry is None or entry.folder is None:
            continue
        try:
            new = FolderFiles(name, entry.folder, entry.path).new()
        except (RelstateError, OSError) as error:
            found[name] = str(error)
        else:
            if new:
                found[name] = new.identity
    return found


def views_with_new_input(state: CatalogState, epoch: EpochEntry) -> list[str]:
    """Views of an epoch that may change in it, and views over those.

    A view may change that was never built, depends on the time, or reads what has moved.
    """
    newest, found = NewestSources(epoch.pins), list[str]()
    for view in (state.views[name] for name in epoch.views):
        is_new = view.last_epoch is None or state.moves_with_time(view, epoch.instant or utc_now())
        if is_new or _moved(state, view, newest) or any(up in found for up in view.reads):
            found.append(view.name)
    return found


def views_behind(
    warehouse: Warehouse, names: Iterable[str], state: CatalogState | None = None, newest: NewestSources | None = None
) -> dict[str, str]:
    """Views that a run would change, each with a stable reason.

    A view that was left behind is not behind again until one of its sources has moved on: the same run would fail again. A
    source that cannot be looked at has not moved. One that is a folder has moved when there are new files in it.

    Parameters
    ----------
    state, newest : of the catalog and of the sources, read just now; read here without them.
    """
    state, wanted = state or warehouse.read(), set(names)
    found = dict.fromkeys(sorted(wanted - set(state.views)), "is not built yet")
    if newest is None:
        newest = NewestSources.of(warehouse, state, [n for view in wanted & set(state.views) for n in state.views[view].reads])
    for name in topological(state.working):
        reason = _behind(state, state.views[name], newest, found) if name in wanted else None
        if reason is not None:
            found[name] = reason
    return found


def _behind(state: CatalogState, view: ViewEntry, newest: NewestSources, behind: Mapping[str, str]) -> str | None:
    failed_at = view.problem.pins if view.problem is not None else {}
    if failed_at:
        moved = [name for name in view.reads if newest.identity(name) not in (None, failed_at.get(name))]
    elif (reason := _behind_anyway(state, view)) is not None:
        return reason
    else:
        moved = _moved(state, view, newest)
    sources = [f"{name} {newest.identity(name)}" for name in moved if name in state.sources]
    if sources:
        return f"has not read {', '.join(sources)}"
    for name in view.reads:
        if name in behind:
            return f"reads {name}, which {behind[name]}"
        if name in moved and view.problem is None:
            return f"has not read epoch {state.views[name].last_epoch} of {name}"
    return None


def _behind_anyway(state: CatalogState, view: ViewEntry) -> str | None:
    """Why a run would change a view whether or not what it reads has moved."""
    if view.last_epoch is None or view.name in state.rebuilds:
        return "is not built yet" if view.last_epoch is None else "is to be rebuilt"
    planner, changed_date = another_planner(view), state.changed_date(view, utc_now())
    if planner is not None:
        return f"was planned by {planner}"
    return None if changed_date is None else f"depends on the date, and {changed_date}"


def _moved(state: CatalogState, view: ViewEntry, newest: NewestSources) -> list[str]:
    """Sources and views that have moved on since a view's last epoch."""
    assert view.last_epoch is not None
    last, since = view.last_epoch, state.epochs[view.last_epoch].pins

    def is_moved(name: str) -> bool:
        if name in state.views:
            return (state.views[name].last_epoch or 0) > last
        is_pinned_anew = name in newest.pins and not (name in since and since[name].is_same(newest.pins[name]))
        return is_pinned_anew or name in newest.new_files

    return [name for name in view.reads if is_moved(name)]
