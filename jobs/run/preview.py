"""Preview of the next run, without Spark and without writing anything.

It has the catalog and logs alone. :mod:`.jobs.run.freshness` compares what views have read with their sources, for the sensor
and the run itself as well. What follows from that for the next run is asked here:

* what it does with each view, why, and how much is read: :func:`preview_run`, for ``relstate plan`` and before rebuilds;
* by which steps it changes a view: :func:`preview_view`, for ``explain``;
* whether it has nothing to do, so that no JVM is started: :func:`idle_reports`;
* whether it is too short for its JVM to optimize code: :func:`is_brief_run`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

from relstate_dagster.jobs.catalog.entries import EpochEntry, SourceEntry, ViewEntry
from relstate_dagster.jobs.catalog.protocol import UNNUMBERED, to_rebuild
from relstate_dagster.jobs.catalog.relations import topological, with_upstream_views
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.strict import check_full_refresh, refusal
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import Project, ViewDeclaration
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.engine.instants import utc_now
from relstate_dagster.jobs.inspect.health import check_tables
from relstate_dagster.jobs.registration.planned_by import another_planner
from relstate_dagster.jobs.registration.sync import check_edits, edits, is_registered, refused_rebuilds, source_entry
from relstate_dagster.jobs.run.freshness import NewestSources, views_behind
from relstate_dagster.jobs.run.slices import built_so_far
from relstate_dagster.jobs.run.until_version import check_reachable, named_sources
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.jobs.view_epoch.plan import plan_view_epoch
from relstate_dagster.jobs.view_epoch.reports import ViewReport, unchanged
from relstate_dagster.jobs.view_epoch.steps import ViewEpochPlan
from relstate_dagster.jobs.view_epoch.view_epoch import state_chain
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError, SourceError, StateError
from relstate_dagster.state_lib.lake.table import DeltaError
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.tuning import tuning
from relstate_dagster.state_lib.units import bytes_shown


class Action(enum.Enum):
    """Action of a run on a view.

    ``BUILD``: it is new. ``REBUILD``: it is planned again and all of it computed. ``RECOMPUTE``: all rows are computed and
    compared. ``FOLLOW``: it reads what changed. ``NOTHING``: that is nothing. ``FAIL``: it would be left behind.
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
class ViewPreview:
    """One view in the next run.

    Parameters
    ----------
    why : in words; empty where there is nothing to say.
    reads : what it reads, with bytes where they are known.
    bytes : those bytes; ``None`` where some are not known.
    seconds : about how long it takes, where past epochs tell.
    before : lines about what the run does before the view's own steps.
    plan : the view's epoch; ``None`` where nothing is known of it yet, or nothing is to be done.
    is_in_full : all rows of a built view are computed, or may be, where another planner has planned it.
    """

    view: str
    action: Action
    why: str = ""
    reads: str = ""
    seconds: float | None = None
    bytes: int | None = 0
    before: tuple[str, ...] = ()
    plan: ViewEpochPlan | None = None
    is_in_full: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The steps of the view's next epoch, a line each."""
        if self.action is Action.FAIL:
            return (f"cannot run: {self.why}",)
        if self.action is Action.NOTHING:
            return ("nothing to do: nothing that it reads has changed",)
        return (*self.before, *(() if self.plan is None else self.plan.lines()))


def preview_run(
    warehouse: Warehouse, project: Project, *, most_tasks: int, views: Collection[str] | None = None
) -> list[ViewPreview]:
    """Actions of the next run, view by view, upstream first.

    Views that no file declares any more come last.

    Parameters
    ----------
    most_tasks : of a shuffle, as Spark is configured.
    views : only these, and those below them, are looked at.

    Raises
    ------
    WarehouseError : the catalog cannot be read.
    """
    state = warehouse.read()
    chosen = project.views if views is None else _with_upstream(project, views)
    upstream = {view.name: project.upstream(view.name) for view in chosen}
    known = state.working.views
    names = {name for view in upstream for name in (*upstream[view], *(known[view].reads if view in known else ()))}
    entries = (source_entry(warehouse, source, state.sources.get(source.name)) for source in project.sources)
    sources = {**state.sources, **{entry.name: entry for entry in entries}}
    source_bytes = cache(lambda name: _all_bytes(warehouse, sources.get(name)))
    newest = NewestSources.of(warehouse, state, names)
    behind = views_behind(warehouse, upstream.keys() & known.keys(), state, newest=newest)
    following = _NextRun(
        warehouse,
        state,
        known,
        newest,
        behind,
        most_tasks,
        dict(edits(warehouse, state, project)),
        refused_rebuilds(warehouse, state, project),
    )
    declared = {view.name for view in project.views}
    new_from: dict[str, set[str]] = {}  # sources of new views, also through other new ones
    for name, reads in upstream.items():
        if name not in known:
            new_from[name] = {source for read in reads for source in new_from.get(read, () if read in declared else (read,))}
        # A view that is new itself is taken to hold as much as the sources that it comes from.
        read = [source_bytes(source) for source in new_from.get(name, ())]
        following.add(name, reads, project.inlined(name), None if None in read else sum(size or 0 for size in read))
    found = list(following.found.values())
    if views is not None:
        return found
    left = [name for name in state.views if name not in declared]
    why = "no file declares it; drop it with relstate run --prune"
    return [*found, *(ViewPreview(name, Action.LEAVE, why) for name in left)]


def preview_view(warehouse: Warehouse, state: CatalogState, view: ViewEntry, *, most_tasks: int) -> ViewPreview:
    """A registered view in the next run, on the views below it.

    What was edited in files and is not registered yet is not looked at.

    Parameters
    ----------
    view : as readers see it; one that is to be rebuilt is looked at as the run does.
    most_tasks : of a shuffle, as Spark is configured.
    """
    working = state.working.with_view(state.rebuilds.get(view.name, view))
    order = with_upstream_views(working, view.name)
    names = {name for below in order for name in working.views[below].reads}
    newest = NewestSources.of(warehouse, state, names)
    behind = views_behind(warehouse, order, state, newest=newest)
    following = _NextRun(warehouse, state, working.views, newest, behind, most_tasks, {}, {})
    for name in order:
        following.add(name, working.views[name].reads)
    return following.found[view.name]


def is_brief_run(warehouse: Warehouse, project: Project, views: Collection[str], full_refresh: Collection[str] = ()) -> bool:
    """Whether a run is too short for its JVM to optimize code.

    Its views read little in their next epoch; unknown sizes are not little.

    How much of other tables a small change meets is not known before: then the run takes up to half as long again.

    Parameters
    ----------
    full_refresh : views that are rebuilt from all of their sources.
    """
    if full_refresh or not 0 < len(views) <= tuning().brief_run_views:
        return False
    try:
        # How many tasks a shuffle has does not matter for what is read.
        found = preview_run(warehouse, project, most_tasks=1, views=views)
    except (RelstateError, DeltaError, OSError):
        return False  # the run reports the error and its view
    read = [one.bytes for one in found if one.view in views]
    return None not in read and sum(size or 0 for size in read) <= tuning().brief_run_bytes


def idle_reports(
    warehouse: Warehouse,
    project: Project,
    names: Collection[str],
    *,
    full_refresh: Collection[str] = (),
    until_version: Mapping[str, int] = MappingProxyType({}),
) -> list[ViewReport] | None:
    """Reports of a run that finds nothing to do; ``None`` if there may be something.

    Parameters
    ----------
    full_refresh, until_version : as of :meth:`.jobs.run.runner.EpochRunner.run`. They are checked here, before the project is
        made known to the warehouse.

    Raises
    ------
    DeclarationError : there is no such view to rebuild, or no such source.
    PlanError : a strict view would be rebuilt that ``full_refresh`` does not name.
    SourceError : a source has no such version, or a view has read further.
    WarehouseError : the catalog cannot be read.
    """
    state = warehouse.read()
    until = named_sources(until_version, {*project.source_names, *state.sources})
    views = {*(view.name for view in project.views), *state.views}
    wanted = {as_declared(name, views) for name in names}
    full_refresh = [as_declared(name, views) for name in full_refresh]
    unknown = [name for name in full_refresh if name not in views]
    if unknown:
        raise DeclarationError(
            f"no materialized view named {', '.join(unknown)} to rebuild; there are {', '.join(sorted(views)) or 'none'}"
        )
    known = [name for name in full_refresh if name in state.views]
    check_edits(warehouse, state, project, full_refresh)
    check_full_refresh(state, known)
    rebuilt = to_rebuild(state, known)
    check_reachable(rebuilt.working, wanted, until, warehouse.source)
    if full_refresh or warehouse.functions is not None or not is_registered(warehouse, state, project):
        return None
    # What another run does, or has left, and files that a drop has left.
    if state.garbage or any(wanted & set(claim.views) for claim in state.claims.values()):
        return None
    entries = [state.views[name] for name in topological(state) if name in wanted]
    newest = NewestSources.of(warehouse, state, {name for view in entries for name in view.reads}, until)
    # The run says which source cannot be looked at.
    if newest.errors or views_behind(warehouse, wanted, state, newest=newest):
        return None
    return [unchanged(state, view) for view in entries] if all(_is_well(warehouse, state, view) for view in entries) else None


@dataclass(frozen=True, slots=True)
class _NextRun:
    """Views in the next run, each looked at after those below it.

    They are measured by the current rows of the views below them, which the run would change first.

    Parameters
    ----------
    views : of the catalog, as the run sees them.
    newest : the sources that they read.
    behind : those that are behind them.
    rebuilt : why views that read something, or are named so, are rebuilt.
    refused : strict views that would be rebuilt, with the reason.
    """

    warehouse: Warehouse
    state: CatalogState
    views: Mapping[str, ViewEntry]
    newest: NewestSources
    behind: Mapping[str, str]
    most_tasks: int
    rebuilt: dict[str, str]
    refused: Mapping[str, str]
    found: dict[str, ViewPreview] = field(default_factory=dict)

    def add(self, name: str, reads: Collection[str], plain_views: Iterable[str] = (), all_bytes: int | None = 0) -> None:
        """Add a view that reads sources and views, also through plain views.

        Parameters
        ----------
        all_bytes : of all that it reads, for a view that the catalog does not know.
        """
        view = self.views.get(name)
        why = next((self.rebuilt[n] for n in (name, *plain_views, *reads) if self.rebuilt.get(n)), "")
        if not why and name in self.state.rebuilds:
            why = "a rebuild of it is not complete"
        if why and view is not None:
            self.rebuilt[name] = f"reads {name}, which is rebuilt"
        failed = next((n for n in reads if n in self.found and self.found[n].action is Action.FAIL), None)
        try:
            if name in self.refused:
                found = ViewPreview(name, Action.FAIL, str(refusal(name, self.refused[name])), is_in_full=True)
            elif failed is not None:
                found = ViewPreview(name, Action.FAIL, f"waits for {failed}, which cannot run")
            elif view is None:
                found = ViewPreview(name, Action.BUILD, "it is new", ", ".join(reads), bytes=all_bytes)
            elif why:
                # An edited query may read other tables than the stored plan does.
                there = tuple(n for n in reads if n in self.state.sources or n in self.state.views)
                found = self._whole(Action.REBUILD, replace(view.restarted(), reads=there), why, (f"rebuilt: {why}",))
            else:
                found = self._advance(view, reads)
        except (RelstateError, DeltaError, OSError) as error:
            found = ViewPreview(name, Action.FAIL, str(error))
        self.found[name] = found

    def _whole(self, action: Action, view: ViewEntry, why: str, before: tuple[str, ...] = ()) -> ViewPreview:
        """A view whose rows are all computed."""
        plan, files = self._plan(view), self._ingested(view)
        seconds = None if action is Action.BUILD else view.costs.of_all(plan.changed_bytes)
        read_bytes = None if files else plan.changed_bytes
        steps = (*before, *files.values())
        is_in_full = action is Action.REBUILD
        return ViewPreview(view.name, action, why, _reads(plan), seconds, read_bytes, steps, plan, is_in_full)

    def _advance(self, view: ViewEntry, reads: Collection[str]) -> ViewPreview:
        """A view without edits."""
        if view.last_epoch is None:
            why = "it is not built yet" if view.built_until is None else f"it is built in part, {built_so_far(view)}"
            return self._whole(Action.BUILD, view, why)
        below = sorted(n for n in reads if n in self.found and self.found[n].action is not Action.NOTHING)
        always = self.state.moves_with_time(view, utc_now())
        is_failed = view.problem is not None or any(name in self.newest.errors for name in view.reads)
        if not (below or always or is_failed or view.name in self.behind):
            return ViewPreview(view.name, Action.NOTHING)
        plan, files = self._plan(view), self._ingested(view)
        is_nothing = not always and all(read.is_nothing for read in plan.reads)
        planner = another_planner(view)
        if is_nothing and not (below or files or planner):
            return ViewPreview(view.name, Action.NOTHING)
        why, before = f"reads {', '.join([*below, *files])}" if below or files else "", [*files.values()]
        if below and is_nothing:
            before.append(f"changes {', '.join(below)} first")
        if planner:
            does = "refused" if view.is_strict else "rebuilt"
            why = f"{planner} has planned it: it is planned again, and {does} if that gives another plan"
            before.insert(0, why)
        read: int | None = plan.changed_bytes
        if files:
            read = None
        elif view.strategy == "full":
            read = self._inputs(view).total_bytes()
        seconds, steps = view.costs.of_change(plan.changed_bytes), None if is_nothing else plan
        if plan.why_recomputed is None:
            in_full = view.strategy == "full" or planner is not None
            return ViewPreview(view.name, Action.FOLLOW, why, _reads(plan), seconds, read, tuple(before), steps, in_full)
        seconds, why = view.costs.of_all(plan.changed_bytes), plan.why_recomputed
        return ViewPreview(view.name, Action.RECOMPUTE, why, _reads(plan), seconds, read, tuple(before), plan, is_in_full=True)

    def _ingested(self, view: ViewEntry) -> dict[str, str]:
        """New files of a view's folders, each with the step that reads them."""
        found = {name: files for name, files in sorted(self.newest.new_files.items()) if name in view.reads}
        return {f"{files} of {name}": f"reads {files} of {name} into its table first" for name, files in found.items()}

    def _inputs(self, view: ViewEntry) -> EpochInputs:
        """A view's inputs; raises as :meth:`_plan` does."""
        for name in view.reads:
            if name in self.newest.errors:
                raise self.newest.errors[name]
        epoch = EpochEntry(UNNUMBERED, self.newest.pins, (view.name,), "", instant=utc_now())
        below = {name: self.state.versions_at(name) for name in view.reads if name in self.state.views}
        versions = {name: found for name, found in below.items() if found is not None}
        return EpochInputs(self.warehouse, self.state, view, epoch, versions, self.newest.reads)

    def _plan(self, view: ViewEntry) -> ViewEpochPlan:
        """The plan of a view's next epoch; at its beginning, of a rebuild.

        Raises
        ------
        RelstateError, DeltaError, OSError : a source cannot be read, or not what changed in it.
        """
        seen = self.state.versions_at(view.name)
        last = self.state.last_of(view)
        files = StateFiles(self.warehouse.state_path(view))
        before = None if last is None else last.versions.get(view.name)
        # As it has been compacted since.
        state_version = None if before is None else state_chain(files, view).since(before.state_commit).newest
        sizes = self._inputs(view).planned_sizes(files, state_version, seen)
        if seen is not None and seen.view_version is not None:
            target, replaces = self.warehouse.target(view.name), view.last_epoch is None
            sizes = replace(sizes, published=target.found(view.declared_table, seen.view_version, replaces=replaces))
        return plan_view_epoch(view, sizes, most_tasks=self.most_tasks)


def _reads(plan: ViewEpochPlan) -> str:
    return ", ".join(f"{read.relation} {bytes_shown(read.bytes)}" for read in plan.reads if not read.is_nothing)


def _with_upstream(project: Project, views: Collection[str]) -> list[ViewDeclaration]:
    """Some views and all below them, upstream first."""
    wanted = set(views)
    for view in reversed(project.views):
        if view.name in wanted:
            wanted |= set(project.upstream(view.name))
    return [view for view in project.views if view.name in wanted]


def _all_bytes(warehouse: Warehouse, source: SourceEntry | None) -> int | None:
    """Bytes of a source's table, none of one that the run makes.

    ``None`` if they are in other files, or unreadable.
    """
    if source is None or source.folder is not None:
        return None
    opened = warehouse.source(source)
    try:
        if opened.exists():
            return opened.totals()[0]
        return 0 if source.table is None else None
    except (DeltaError, SourceError, OSError):
        return None  # the run reports the error


def _is_well(warehouse: Warehouse, state: CatalogState, view: ViewEntry) -> bool:
    """Whether only new commits of its inputs could change a view; its tables exist."""
    has_indexes = any(state.sources[name].indexes for name in view.reads if name in state.sources)
    if view.problem is not None or view.functions or has_indexes or state.moves_with_time(view, utc_now()):
        return False
    try:
        check_tables(warehouse, state, view)
    except StateError:
        return False  # the run reports the error
    return True
