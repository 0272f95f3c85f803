"""Declaration and removal of sources and views, checked before the catalog is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.entries import PlainViewEntry, SourceEntry, ViewEntry, with_source_options
from relstate_dagster.jobs.catalog.protocol import Claimed, with_dependents
from relstate_dagster.jobs.catalog.relations import source_relation, topological, with_columns_named
from relstate_dagster.jobs.catalog.state import CatalogState, ConcurrentCatalogChange, changed_entries
from relstate_dagster.jobs.catalog.strict import is_protected, refusal
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import ViewDeclaration, check_name
from relstate_dagster.jobs.declare.changelogs import changelog_of, is_changelog_view
from relstate_dagster.jobs.declare.checks import checks_of
from relstate_dagster.jobs.declare.model import is_by_days
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.declare.query_function import Query, is_same_query, with_known_reads
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.engine.workloads import forget_table
from relstate_dagster.jobs.planner.query_frames import UnknownRelation
from relstate_dagster.jobs.registration.kept_sources import check_kept
from relstate_dagster.jobs.registration.spark_catalog import check_published_name, forget_published_name
from relstate_dagster.jobs.registration.view_planner import (
    ViewPlanner,
    column_comments,
    declaration_of,
    inlined,
    layout_of,
    mentions,
    with_table_ids,
)
from relstate_dagster.jobs.targets.declared_table import TableLayout
from relstate_dagster.state_lib.errors import DeclarationError, PlanError, RelstateError
from relstate_dagster.state_lib.lake.folders import delete_folder, table_id

#: How often a change is made again where others are faster every time.
_ATTEMPTS: Final = 20


@dataclass(slots=True)
class _Declared:
    """A declaration of many views, under way.

    ``changed`` are edited views, ``unplanned`` those of them that cannot be planned, and ``planned`` views that were planned
    since the last plain view was added.
    """

    state: CatalogState
    changed: list[str] = field(default_factory=list)
    unplanned: set[str] = field(default_factory=set)
    planned: set[str] = field(default_factory=set)

    def add_plain(self, state: CatalogState) -> None:
        self.state = state
        self.planned.clear()

    def add(self, state: CatalogState, view: str) -> None:
        self.state = state
        self.planned.add(view)


class Registry:
    """Adds to and removes from a warehouse's catalog.

    Every method returns the new catalog state, or raises and leaves the warehouse as it was.

    Parameters
    ----------
    patience : how to wait for runs that have the views that change.
    leaves_behind : whether views that cannot be planned any more, because of what was edited, are left for the next run.
        That run tries to plan them and says why it cannot. They refuse the edit otherwise.
    full_refresh : views that may be rebuilt though their policy is strict.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        patience: Patience | None = None,
        *,
        leaves_behind: bool = False,
        full_refresh: Collection[str] = (),
    ) -> None:
        self._full_refresh = full_refresh
        self._leaves_behind = leaves_behind
        self._spark = spark
        self._warehouse = warehouse
        self._planner = ViewPlanner(spark, warehouse)
        self._patience = patience

    def _patiently(self, change: Callable[[], CatalogState]) -> CatalogState:
        """Make a change, again if others were faster, after runs that have its views.

        Raises
        ------
        EpochError : they have them for longer than there was time to wait.
        """
        for _ in range(_ATTEMPTS):
            with suppress(ConcurrentCatalogChange):
                return change()
        return change()

    def _commit(self, base: CatalogState, state: CatalogState) -> CatalogState:
        """Write what was changed, once no run has any of the views."""
        changed = {*changed_entries(base.views, state.views), *changed_entries(base.rebuilds, state.rebuilds)}
        known = changed & set(base.views)

        def unclaimed(newest: CatalogState) -> CatalogState:
            check_kept(base, newest, self._warehouse.root)
            for claim in claims.alive_claims(newest, known) if known else ():
                raise Claimed(f"{claim} {', '.join(claim.views)}, is at work; run again")
            return newest

        if not known:
            return self._warehouse.catalog.commit(base, state, unclaimed)
        with Claims(self._warehouse, "", "declaring", self._patience) as claims:
            claims.acquire_views(known)
            return self._warehouse.catalog.commit(base, state, unclaimed)

    def add_source(self, entry: SourceEntry) -> CatalogState:
        """Register a Delta table as a source, or change its declaration.

        Views that read it are then rebuilt.

        Other indexes, another watermark, and a name in Spark's catalog may be declared at any time.
        """
        return self._patiently(partial(self._add_source, entry))

    def _add_source(self, entry: SourceEntry) -> CatalogState:
        check_name(entry.name, "source")
        base = state = self._warehouse.read()
        if state.sources.get(entry.name) != entry:
            entry = with_columns_named(entry, self._warehouse.source(entry).facts())
        known = state.sources.get(entry.name)
        if known == entry:
            return state
        self.check_free(state, entry.name, besides="source")
        is_other = known is not None and with_source_options(known, entry) != entry
        source_relation(entry, self._warehouse.source(entry).facts())
        readers = state.working.dependents(entry.name) if is_other else []
        state = self._planned_again_with(state.with_source(entry), readers, f"source {entry.name}")
        if known is not None and known.folder is not None and known.path != entry.path:
            # Its rows come from files that are still there, and are read from the first one on.
            state = replace(state, garbage={**state.garbage, self._warehouse.inside(known.path): table_id(known.path)})
        return self._commit(base, state)

    def add_plain_view(self, name: str, query: Query, *, replace_existing: bool = False) -> CatalogState:
        """Register an inlined view.

        Views that inline a replaced one are rebuilt.
        """
        state = self._warehouse.read()
        name = as_declared(name, state.plain_views) if replace_existing else name
        self.check_free(state, name, besides="plain view" if replace_existing else "")
        return self.declare([], [PlainViewEntry(name, query)])

    def declare(self, views: Sequence[ViewDeclaration], plain_views: Sequence[PlainViewEntry] = ()) -> CatalogState:
        """Register views, all or none.

        Edited ones are rebuilt, with the views over them.

        Parameters
        ----------
        views, plain_views : upstream first.

        Raises
        ------
        DeclarationError, PlanError : one cannot be planned, or one that reads an edited one cannot be any more. A strict one
            would be rebuilt.
        """
        return self._patiently(partial(self._declare, views, plain_views))

    def _declare(self, views: Sequence[ViewDeclaration], plain_views: Sequence[PlainViewEntry]) -> CatalogState:
        before = self.swept()
        edited = [p for p in plain_views if not is_same_plain_view(before.plain_views.get(p.name), p)]
        declared = _Declared(_with_moved_files(before, plain_views))
        pending: list[PlainViewEntry | ViewDeclaration] = [*edited, *views]
        postponed = 0
        while pending:
            definition = pending.pop(0)
            try:
                if isinstance(definition, PlainViewEntry):
                    declared.add_plain(self._with_plain_view(declared.state, definition))
                else:
                    self._add_declared(declared, definition, pending)
            except UnknownRelation as error:
                # A plain view reads one that is declared after it, or a function does, as is known once it is called.
                if postponed == len(pending) or not _is_among(error.relation, pending):
                    raise
                pending.append(definition)
                postponed += 1
            else:
                postponed = 0
        state, changed = declared.state, declared.changed
        known = state.working.views.items()
        readers = {n for n, v in known if any(inlined(state, v.query, p.name) for p in edited)} - declared.planned
        over = (set(with_dependents(state, changed)) - set(changed)) | readers
        state = self._planned_again_with(state, over, ", ".join([*changed, *(p.name for p in edited)]))
        if state == before:
            return state
        for view in [view for view in views if view.name not in declared.unplanned]:
            self._planner.check_references(state.working, state.working.views[view.name])
        return self._commit_named(before, state, views)

    def _commit_named(self, before: CatalogState, state: CatalogState, views: Sequence[ViewDeclaration]) -> CatalogState:
        """Commit a state, and give published tables their new names in Spark's catalog."""
        entries = state.working.views
        named = [entries[view.name] for view in views if _published_as(before, view.name) != entries[view.name].published_as]
        for entry in named:
            check_published_name(self._spark, self._warehouse, entry, entries.values())
        state = self._commit(before, state)
        for entry in named:
            # The table of a new view is named by its first epoch.
            if entry.published_as is not None and state.views[entry.name].last_epoch is not None:
                self._warehouse.target(entry.name).register(self._spark, entry.published_as)
        return state

    def _add_declared(
        self, declared: _Declared, view: ViewDeclaration, pending: Collection[PlainViewEntry | ViewDeclaration]
    ) -> None:
        """Register a view.

        An edited one is rebuilt if its plan is another one.
        """
        state = declared.state
        known = state.working.views.get(view.name)
        if known is None:
            self.check_free(state, view.name, besides="")
            with _naming(view.name):
                entry = self._planner.plan(state.working, view)
            declared.add(with_table_ids(state, entry).with_view(entry), view.name)
        elif has_query_of(known, view):
            declared.state = state = self._with_checked_options(state, view)
            if checks_of(known.properties, view.name) != checks_of(view.properties, view.name):
                self._planner.check_declared(state.working.views[view.name])
        else:
            try:
                with _naming(view.name):
                    entry = self._planner.plan(state.working, view)
            except RelstateError as error:
                is_later = isinstance(error, UnknownRelation) and _is_among(error.relation, pending)
                if is_later or not self._leaves_behind:
                    raise
                entry = to_be_planned(known, view)
                declared.unplanned.add(view.name)
            if view.name not in declared.unplanned and _is_planned_alike(known, entry):
                declared.state = _with_query(_with_options(state, view), view.name, entry.query)
                return
            self._check_may_rebuild(_with_options(state, view), view.name, "it was edited")
            declared.add(_with_options(with_table_ids(state, entry).with_rebuild(entry), view), view.name)
            declared.changed.append(view.name)

    def _with_plain_view(self, state: CatalogState, plain: PlainViewEntry) -> CatalogState:
        check_name(plain.name, "view")
        self.check_free(state, plain.name, besides="plain view")
        others = replace(state, plain_views={k: v for k, v in state.plain_views.items() if k != plain.name})
        with _naming(plain.name):
            plain = replace(plain, query=self._planner.with_reads(others.working, plain.query))
        if inlined(others, plain.query, plain.name):
            raise DeclarationError(f"view {plain.name} reads itself; a view can only read sources and other views")
        with _naming(plain.name):
            self._planner.analyse(others, plain.query)
        state = state.with_plain_view(plain)
        for reader in state.plain_views.values():
            if reader.name != plain.name and inlined(state, reader.query, plain.name):
                try:
                    self._planner.analyse(state, reader.query)
                except RelstateError as error:
                    if self._leaves_behind:
                        continue  # so are the materialized views that read it
                    raise DeclarationError(
                        f"view {reader.name} cannot be read with {plain.name} as declared now: {error}; edit or drop "
                        f"{reader.name} as well"
                    ) from error
        return state

    def _planned_again_with(self, state: CatalogState, names: Iterable[str], edited: str) -> CatalogState:
        """The state with edited views, and those over them, planned again.

        The next run rebuilds them.
        """
        wanted = set(with_dependents(state, names))
        for name in topological(state.working):
            if name not in wanted:
                continue
            declared = declaration_of(state.working.views[name])
            self._check_may_rebuild(state, name, f"what it reads was edited ({edited})")
            try:
                entry = self._planner.plan(state.working, declared)
            except RelstateError as error:
                if self._leaves_behind:
                    state = state.with_rebuild(to_be_planned(state.working.views[name], declared))
                    continue
                raise DeclarationError(
                    f"view {name} cannot be planned on {edited} as declared now: {error}; edit or drop {name} as well"
                ) from error
            state = with_table_ids(state, entry).with_rebuild(entry)
        return state

    def _with_checked_options(self, state: CatalogState, view: ViewDeclaration) -> CatalogState:
        """The state with a view's options.

        A view with a rebuild that is not complete does not become strict.
        """
        was_strict, state = state.working.views[view.name].is_strict, _with_options(state, view)
        if view.name in state.rebuilds and not was_strict:
            self._check_may_rebuild(state, view.name, "a rebuild of it is not complete")
        return state

    def _check_may_rebuild(self, state: CatalogState, name: str, why: str) -> None:
        if name not in self._full_refresh and is_protected(state, state.working.views[name]):
            raise refusal(name, why)

    def plan_unbuilt(self) -> CatalogState:
        """Plan the views that the next run builds, where that run would plan them.

        Raises
        ------
        PlanError : one cannot be planned.
        """
        return self._patiently(self._plan_unbuilt)

    def _plan_unbuilt(self) -> CatalogState:
        before = state = self.swept()
        for name in topological(state.working):
            view = state.working.views[name]
            if view.last_epoch is None:
                state = self._planner.planned_again(state, view)
        return state if state == before else self._commit(before, state)

    def add_view(self, definition: ViewDeclaration) -> CatalogState:
        """Plan a view and register it.

        The next run that includes it fills it.
        """
        self.check_free(self._warehouse.read(), definition.name, besides="")
        return self.declare([definition])

    def drop(self, name: str, kind: str) -> CatalogState:
        """Drop a source, view or materialized view, and files the warehouse made for it.

        The catalog first says that they are to be deleted: whoever comes next deletes what a drop that died has left.

        Raises
        ------
        DeclarationError : there is no such thing, or something depends on it.
        """
        return self._patiently(partial(self._drop, name, kind))

    def _drop(self, name: str, kind: str) -> CatalogState:
        check_name(name)
        state = self.swept()
        of_kind: dict[str, Mapping[str, object]] = {
            "source": state.sources,
            "plain view": state.plain_views,
            "view": state.views,
        }
        name = as_declared(name, [*of_kind[kind], *(() if kind == "plain view" else (*state.views, *state.sources))])
        # A table of changes and the view of what they come to are one thing to whoever declared them.
        of_changelog = kind != "plain view" and name in state.views and is_changelog_view(state.views[name].properties)
        if name not in of_kind[kind] and not of_changelog:
            raise DeclarationError(f"there is no {kind} named {name} in this warehouse")
        dependents = self.dependents(state, name)
        if dependents:
            raise DeclarationError(f"{name} cannot be dropped: {', '.join(dependents)} depend on it; drop those first")
        view, source = (name if kind == "view" else None), (name if kind == "source" else None)
        if of_changelog:
            view, source = name, changelog_of(name)
        created: list[str] = []
        if view is not None:
            forget_published_name(self._spark, self._warehouse, state.views[view])
            created += [self._warehouse.target(view).path, self._warehouse.states_path(view)]
        if source is not None and state.sources[source].managed:
            created.append(state.sources[source].path)
        garbage = {self._warehouse.inside(path): table_id(path) for path in created}
        rest = state
        for dropped in {name, view, source} - {None}:
            rest = rest.without(str(dropped))
        self._commit(state, replace(rest, garbage={**state.garbage, **garbage}))
        failpoints.reached("inside_drop")
        return self.swept()

    def swept(self) -> CatalogState:
        """The catalog's state after the files of dropped entries are deleted."""
        state = self._warehouse.read()
        if not state.garbage:
            return state
        swept = dict(state.garbage)
        for inside, identity in swept.items():
            path = f"{self._warehouse.root}/{inside}"
            # A table that somebody else has made there since is not ours to delete.
            if table_id(path) in ("", identity):
                delete_folder(path)
                forget_table(self._spark, path)

        def without(newest: CatalogState) -> CatalogState:
            return replace(newest, garbage={k: v for k, v in newest.garbage.items() if swept.get(k) != v})

        return self._warehouse.catalog.update(without)

    def dependents(self, state: CatalogState, name: str) -> list[str]:
        """Materialized and plain views that read a name."""
        found = state.dependents(name)
        for plain in state.plain_views.values():
            if plain.name != name and mentions(plain.query, name):
                found.append(plain.name)
        if name in state.plain_views:
            found += [v.name for v in state.views.values() if mentions(v.query, name)]
        return sorted(set(found))

    def check_free(self, state: CatalogState, name: str, *, besides: str) -> None:
        """Check that nothing is called so, in any case.

        Parameters
        ----------
        besides : one of this kind may have the name, written the same.

        Raises
        ------
        DeclarationError : something is.
        """
        for kind, existing in (("source", state.sources), ("plain view", state.plain_views), ("view", state.views)):
            clash = next((other for other in existing if other.lower() == name.lower()), None)
            if clash is not None and (kind != besides or clash != name):
                raise DeclarationError(f"there is a {kind} named {clash} already; drop it first or take another name")


def to_be_planned(entry: ViewEntry, view: ViewDeclaration) -> ViewEntry:
    """A catalog entry without a plan, which the next run plans or leaves behind."""
    return replace(
        entry.restarted(),
        query=view.named_query,
        planned_on="",
        properties=dict(view.properties),
        layout=layout_of(view),
        problem=entry.problem,
    )


@contextmanager
def _naming(view: str) -> Iterator[None]:
    """Errors of planning a view name it."""
    try:
        yield
    except PlanError as error:
        if f"view {view} " in str(error):
            raise
        message = f"view {view}: {error}"
        named = UnknownRelation(message, error.relation) if isinstance(error, UnknownRelation) else PlanError(message)
        raise named from error


def has_query_of(known: ViewEntry, view: ViewDeclaration) -> bool:
    """Whether a declaration equals a view, but for options that need no rebuild."""
    is_planned_alike = known.refresh_policy == view.refresh_policy or (
        known.strategy == "incremental"
        and "full" not in (known.refresh_policy, view.refresh_policy)
        and not known.plan.is_of_a_day
    )
    is_as_late = is_by_days(known.properties) == is_by_days(view.properties)
    same_query = is_same_query(known.query, view.named_query) and is_planned_alike and is_as_late
    return same_query and _laid_out_by(known.layout) == _laid_out_by(layout_of(view))


def is_same_plain_view(known: PlainViewEntry | None, plain: PlainViewEntry) -> bool:
    """Whether the declaration of a plain view is unchanged."""
    return known is not None and known.name == plain.name and is_same_query(known.query, plain.query)


def _is_planned_alike(known: ViewEntry, entry: ViewEntry) -> bool:
    """Whether an edited function gives the same plan: nothing is rebuilt then."""
    if isinstance(known.query, str) or isinstance(entry.query, str):
        return False
    one, other = (
        (
            *(view.plan, view.reads, view.settings, view.planned_on, view.refresh_policy, is_by_days(view.properties)),
            _laid_out_by(view.layout),
        )
        for view in (known, entry)
    )
    return bool(one == other) and known.plan_version == entry.plan_version


def _is_among(name: str, views: Iterable[PlainViewEntry | ViewDeclaration]) -> bool:
    return any(view.name.lower() == name.lower() for view in views)


def _with_query(state: CatalogState, name: str, query: Query) -> CatalogState:
    """The state with the query of a view, whose plan stays."""
    of_rebuild = state.rebuilds.get(name)
    if of_rebuild is not None:
        return replace(state, rebuilds={**state.rebuilds, name: replace(of_rebuild, query=query)})
    return state.with_view(replace(state.views[name], query=query))


def _with_moved_files(state: CatalogState, plain_views: Iterable[PlainViewEntry]) -> CatalogState:
    """The state with the present files of functions that are plain views."""
    for plain in plain_views:
        known = state.plain_views.get(plain.name)
        if known is not None and is_same_plain_view(known, plain) and known != plain:
            state = state.with_plain_view(replace(plain, query=with_known_reads(plain.query, known.query)))
    return state


def _laid_out_by(layout: TableLayout) -> tuple[list[str], list[str]]:
    """The columns of a layout in lower case: their case makes no difference."""
    return [c.lower() for c in layout.cluster_by], [c.lower() for c in layout.partitioned_by]


def with_options(entry: ViewEntry, view: ViewDeclaration) -> ViewEntry:
    """A view with the comments and properties of a declaration, which need no rebuild."""
    comments = column_comments(view, (output.name for output in entry.plan.output))
    layout = replace(entry.layout, column_comments=comments)
    query = entry.query
    if is_same_query(query, view.named_query):
        # A function's file may lie elsewhere now.
        query = with_known_reads(view.named_query, query)
    return replace(entry, query=query, comment=view.comment, properties=dict(view.properties), layout=layout)


def _published_as(state: CatalogState, name: str) -> str | None:
    """Name of a view's published table in Spark's catalog, as declared before."""
    view = state.working.views.get(name)
    return None if view is None else view.published_as


def _with_options(state: CatalogState, view: ViewDeclaration) -> CatalogState:
    """The state with a view's comments and properties."""
    of_rebuild = state.rebuilds.get(view.name)
    if of_rebuild is not None:
        state = replace(state, rebuilds={**state.rebuilds, view.name: with_options(of_rebuild, view)})
    return state.with_view(with_options(state.views[view.name], view))
