"""Preview of a project's next run, without Spark and without writing anything."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache

from relstate_dagster.jobs.catalog.entries import PlainViewEntry, SourceEntry, ViewEntry, is_same_source
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import Project, ViewDeclaration
from relstate_dagster.jobs.plan.plan_version import PLAN_VERSION
from relstate_dagster.jobs.registration.registry import has_query_of
from relstate_dagster.jobs.registration.sync import source_entry
from relstate_dagster.jobs.run.next_epoch import NextEpoch, is_nothing
from relstate_dagster.jobs.run.slices import built_so_far
from relstate_dagster.jobs.view_epoch.refresh_choice import may_choose
from relstate_dagster.jobs.view_epoch.steps import ViewEpochPlan
from relstate_dagster.state_lib.errors import RelstateError
from relstate_dagster.state_lib.lake.folders import is_table
from relstate_dagster.state_lib.lake.table import DeltaError, OpenedTable
from relstate_dagster.state_lib.units import bytes_shown


class Action(enum.Enum):
    """Action of a run on a view.

    ``BUILD``: it is new. ``REBUILD``: it is planned again and all of it computed. ``RECOMPUTE``: ``auto`` takes all of it for
    cheaper than its change. ``FOLLOW``: it reads what changed. ``NOTHING``: that is nothing. ``FAIL``: it would be left behind.
    ``LEAVE``: no file declares it any more.
    """

    BUILD = "build"
    REBUILD = "rebuild"
    RECOMPUTE = "recompute"
    FOLLOW = "follow"
    NOTHING = "nothing"
    FAIL = "fail"
    LEAVE = "not run"


@dataclass(frozen=True, slots=True)
class Outlook:
    """One view in the next run.

    Parameters
    ----------
    why : in words; empty where there is nothing to say.
    reads : what it reads, with bytes where they are known.
    bytes : those bytes; ``None`` where some are not known.
    seconds : about how long it takes, where past epochs tell.
    """

    view: str
    does: Action
    why: str = ""
    reads: str = ""
    seconds: float | None = None
    bytes: int | None = 0


def outlook(warehouse: Warehouse, project: Project, *, most_tasks: int, views: Collection[str] | None = None) -> list[Outlook]:
    """Actions of the next run, view by view, upstream first.

    Views that no file declares any more come last.

    Parameters
    ----------
    views : only these, and those below them, are looked at.

    Raises
    ------
    WarehouseError : the catalog cannot be read.
    """
    state = warehouse.read()
    chosen = project.views if views is None else _with_upstream(project, views)
    upstream = {view.name: project.upstream(view.name) for view in chosen}
    known_reads = [state.working.views[name].reads for name in upstream if name in state.working.views]
    names = {name for reads in (*upstream.values(), *known_reads) for name in reads}
    sources = {**state.sources, **{source.name: source_entry(warehouse, source) for source in project.sources}}
    source_bytes = cache(lambda name: _all_bytes(sources.get(name)))
    following = NextEpoch(warehouse, state, names, most_tasks=most_tasks)
    rebuilt = dict(_changed_inputs(warehouse, state, project))
    declared = {view.name for view in project.views}
    found: list[Outlook] = []
    moves: set[str] = set()
    for view in chosen:
        named = list(_names_in(project, view.name))
        known, why = state.working.views.get(view.name), _why_rebuilt(state, view, named, rebuilt)
        if known is None:
            # A view that it reads holds no more than comes from what that one reads.
            read = [source_bytes(name) for name in upstream[view.name] if name not in declared]
            total = None if None in read else sum(size or 0 for size in read)
            found.append(Outlook(view.name, Action.BUILD, "it is new", ", ".join(upstream[view.name]), bytes=total))
        elif why is not None:
            rebuilt[view.name] = f"reads {view.name}, which is rebuilt"
            # An edited query may read other tables than the stored plan does.
            there = tuple(n for n in upstream[view.name] if n in state.sources or n in state.views)
            found.append(_rebuild(following, replace(known.restarted(), reads=there), why))
        else:
            found.append(_follow(following, state, known, moves & set(named)))
        if found[-1].does is not Action.NOTHING:
            moves.add(view.name)
    if views is not None:
        return found
    left = [name for name in state.views if name not in declared]
    return [*found, *(Outlook(name, Action.LEAVE, "no file declares it; drop it with relstate run --prune") for name in left)]


def _with_upstream(project: Project, views: Collection[str]) -> list[ViewDeclaration]:
    """Some views and all below them, upstream first."""
    wanted = set(views)
    for view in reversed(project.views):
        if view.name in wanted:
            wanted |= set(project.upstream(view.name))
    return [view for view in project.views if view.name in wanted]


def _all_bytes(source: SourceEntry | None) -> int | None:
    """Bytes of a source's table, none of one that the run makes.

    ``None`` if they are in other files, or unreadable.
    """
    if source is None or source.folder is not None:
        return None
    try:
        return OpenedTable(source.path).total_bytes() if is_table(source.path) else 0
    except (DeltaError, OSError):
        return None  # the run says what is wrong with it


def _changed_inputs(warehouse: Warehouse, state: CatalogState, project: Project) -> Iterator[tuple[str, str]]:
    """Edited sources and plain views, with the reason for views that read them."""
    for source in project.sources:
        entry, known = source_entry(warehouse, source), state.sources.get(source.name)
        if known is not None and not is_same_source(replace(known, indexes=entry.indexes), entry):
            yield source.name, f"source {source.name} is declared otherwise"
    for plain in project.plain_views:
        if state.plain_views.get(plain.name, PlainViewEntry(plain.name, plain.sql)) != PlainViewEntry(plain.name, plain.sql):
            yield plain.name, f"plain view {plain.name} was edited"


def _names_in(project: Project, name: str) -> Iterator[str]:
    """Names in a view, also through plain views."""
    plain = {view.name for view in project.plain_views}
    for read in project.reads.get(name, ()):
        yield read
        if read in plain:
            yield from _names_in(project, read)


def _why_rebuilt(state: CatalogState, view: ViewDeclaration, names: list[str], rebuilt: dict[str, str]) -> str | None:
    known = state.working.views.get(view.name)
    if known is not None and not has_query_of(known, view):
        return "it was edited"
    why = next((rebuilt[name] for name in names if name in rebuilt), None)
    if why is not None:
        return why
    if view.name in state.rebuilds:
        return "a rebuild of it is not complete"
    return None


def _rebuild(following: NextEpoch, view: ViewEntry, why: str) -> Outlook:
    try:
        plan = following.plan(view)
    except (RelstateError, OSError) as error:
        return Outlook(view.name, Action.FAIL, str(error))
    total_bytes = plan.changed_bytes
    return Outlook(view.name, Action.REBUILD, why, _reads(plan), view.costs.of_all(total_bytes), total_bytes)


def _follow(following: NextEpoch, state: CatalogState, view: ViewEntry, below: set[str]) -> Outlook:
    """A view without edits.

    ``below`` are views that it reads, and that the run changes.
    """
    try:
        plan = following.plan(view)
    except (RelstateError, OSError) as error:
        return Outlook(view.name, Action.FAIL, str(error))
    if view.last_epoch is None:
        why = "it is not built yet" if view.built_until is None else f"it is built in part, {built_so_far(view)}"
        return Outlook(view.name, Action.BUILD, why, _reads(plan), bytes=plan.changed_bytes)
    files = [f"{files} of {name}" for name, files in sorted(following.new_files.items()) if name in view.reads]
    is_planned_before = view.plan_version != PLAN_VERSION
    if is_nothing(view, plan) and not below and not files and not is_planned_before:
        return Outlook(view.name, Action.NOTHING)
    why = f"reads {', '.join([*sorted(below), *files])}" if below or files else ""
    if is_planned_before:
        why = "another version of relstate has planned it: it is planned again, and rebuilt if that gives another plan"
    if view.costs.changes and may_choose(state, view):
        total_bytes = following.inputs(view).total_bytes()
        chosen = view.costs.cheaper_in_full(plan.changed_bytes, total_bytes)
        if chosen is not None:
            return Outlook(view.name, Action.RECOMPUTE, chosen, _reads(plan), view.costs.of_all(total_bytes), total_bytes)
    read: int | None = plan.changed_bytes
    if files:
        read = None
    elif view.strategy == "full":
        read = following.inputs(view).total_bytes()
    return Outlook(view.name, Action.FOLLOW, why, _reads(plan), view.costs.of_change(plan.changed_bytes), read)


def _reads(plan: ViewEpochPlan) -> str:
    return ", ".join(f"{read.relation} {bytes_shown(read.bytes)}" for read in plan.reads if not read.is_nothing)
