"""Declares sources and views in a warehouse, and drops them: what the catalog knows, checked before it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from jobs import failpoints
from jobs.catalog.entries import PlainView, SourceEntry, TableLayout, ViewEntry
from jobs.catalog.plans import Planned
from jobs.catalog.state import CatalogState, ConcurrentCatalogChange, changed_entries
from jobs.declare import ViewDeclaration, check_name
from jobs.epoch.claims import Claims
from jobs.epoch.protocol import Claimed, with_dependents
from jobs.epoch.sessions import forget_table
from jobs.functions import UserFunctions, called_in
from jobs.planner.catalyst import Catalyst, type_ddl
from jobs.planner.current_time import reads_current_time
from jobs.planner.expressions import NotIncremental
from jobs.planner.map_keys import with_map_keys
from jobs.planner.meaning import meaning_of
from jobs.planner.nodes import Field, FullQuery, Materialize, OutputColumn, relations_read, walk
from jobs.planner.planning import plan_view
from jobs.planner.query_text import relations_named
from jobs.planner.relations import Relation
from jobs.planner.state_tables import infer_state_tables
from jobs.planner.trees import items
from jobs.planner.types_check import check_published_types
from jobs.relations import source_relation, topological, view_relation
from jobs.warehouse import Warehouse
from state_lib.errors import DeclarationError, PlanError, RelstateError, SourceError
from state_lib.lake.folders import delete_folder, is_table, table_id
from state_lib.table_catalog import TableCatalog
from state_lib.table_schema import StateTableDesc

#: Reasons for which `auto` does not fall back to full recomputation: the result would be another one every time.
_NEVER_FULL = frozenset({"non-deterministic"})
#: How often a change is made again where others are faster every time.
_ATTEMPTS: Final = 20


class Registry:
    """Adds to and removes from a warehouse's catalog.

    Every method returns the new catalog state, or raises and leaves the warehouse as it was.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse, *, wait_seconds: float | None = None) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._claims = Claims(warehouse, "", "declaring", wait_seconds=wait_seconds)

    def _patiently(self, change: Callable[[], CatalogState]) -> CatalogState:
        """Make a change, from the start again where others were faster; wait for runs that have the views that it changes.

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
            for claim in self._claims.living(newest, known):
                raise Claimed(f"{claim} {', '.join(claim.views)}, is at work; run again")
            return newest

        if known:
            self._claims.free(known)
        return self._warehouse.catalog.commit(base, state, unclaimed)

    def add_source(self, entry: SourceEntry) -> CatalogState:
        """Register a Delta table as a source, or declare it otherwise than before: views that read it are then rebuilt.

        Other indexes may be declared at any time.
        """
        return self._patiently(partial(self._add_source, entry))

    def _add_source(self, entry: SourceEntry) -> CatalogState:
        check_name(entry.name, "source")
        base = state = self._warehouse.read()
        known = state.sources.get(entry.name)
        if known == entry:
            return state
        self._check_free(state, entry.name, besides="source")
        is_other = known is not None and replace(known, indexes=entry.indexes) != entry
        source_relation(entry, self._warehouse.source(entry).facts())
        readers = state.working.dependents(entry.name) if is_other else []
        state = self._planned_again_with(state.with_source(entry), readers, f"source {entry.name}")
        return self._commit(base, state)

    def add_plain_view(self, name: str, query: str, *, replace_existing: bool = False) -> CatalogState:
        """Register a view that is inlined where it is used; views that inline one that is replaced are rebuilt."""
        self._check_free(self._warehouse.read(), name, besides="plain view" if replace_existing else "")
        return self.declare([], [PlainView(name, query)])

    def plan(self, state: CatalogState, definition: ViewDeclaration) -> ViewEntry:
        """Plan a view without declaring it: its entry, with table ids as they would be allocated.

        Raises
        ------
        PlanError : Spark refuses the query, or the refresh policy asks for what is not possible.
        """
        check_name(definition.name, "view")
        others = state.without(definition.name)
        if _inlined(others, definition.sql, definition.name):
            raise DeclarationError(f"view {definition.name} reads itself; a view can only read sources and other views")
        policy = definition.refresh_policy
        functions = self._warehouse.functions
        relations = self.relations(others, _named_in(others, definition.sql))
        reason: str | None = None
        if policy == "full":
            plan, reason = self._full_plan(definition, relations, others), "the view's refresh.policy is full"
        else:
            try:
                plan = plan_view(self._spark, definition.sql, relations, _plain_views_in(others, definition.sql), functions)
            except NotIncremental as refusal:
                if policy == "incremental" or refusal.code in _NEVER_FULL:
                    hint = "set TBLPROPERTIES ('refresh.policy' = 'full') to have it recomputed at every epoch"
                    raise PlanError(
                        f"view {definition.name} cannot be maintained incrementally: {refusal}; {hint}"
                    ) from refusal
                reason = str(refusal)
                plan = self._full_plan(definition, relations, others)
        schemas = [s for node in walk(plan) for s in infer_state_tables(node)]
        tables, _ = TableCatalog(state.next_table_id).allocate(schemas)
        known = state.views.get(definition.name)
        if known is not None:
            tables = _as_large(tables, known.tables)
        is_full = isinstance(plan.child, FullQuery)
        return ViewEntry(
            name=definition.name,
            query=definition.sql,
            strategy="full" if is_full else "incremental",
            reason=reason,
            planned=Planned.of(plan, tables),
            reads=relations_read(plan),
            settings=meaning_of(self._spark),
            comment=definition.comment,
            properties=dict(definition.properties),
            functions=() if functions is None else self._called(functions, definition, others),
            planned_on=self._planned_on(others, definition.sql, relations_read(plan)),
            inlined=_plain_views_in(others, definition.sql),
            layout=self._checked_layout(definition, plan),
        )

    def _planned_on(self, state: CatalogState, query: str, reads: Sequence[str]) -> str:
        """A digest of relations as a plan depends on them: columns, keys, and whether they are only appended to."""
        known = self.relations(state, reads)
        parts = [repr(known.get(name)) for name in sorted(reads)] + [repr(_plain_views_in(state, query))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @staticmethod
    def _checked_layout(view: ViewDeclaration, plan: Materialize) -> TableLayout:
        columns = {o.name.lower(): o.name for o in plan.output}
        for clause, names in (
            ("CLUSTER BY", view.cluster_by),
            ("PARTITIONED BY", view.partitioned_by),
            ("the column list", tuple(view.column_comments)),
        ):
            missing = [n for n in names if n.lower() not in columns]
            if missing:
                raise DeclarationError(
                    f"view {view.name}: {clause} names {', '.join(missing)}, which is no column of it; "
                    f"there are {', '.join(columns.values())}"
                )
        if view.cluster_by and view.partitioned_by:
            raise DeclarationError(f"view {view.name}: CLUSTER BY and PARTITIONED BY exclude each other, as in Delta")
        if len(view.partitioned_by) == len(columns):
            raise DeclarationError(f"view {view.name}: PARTITIONED BY names all columns; leave one for the files")
        named = {columns[n.lower()]: text for n, text in view.column_comments.items()}
        return TableLayout(
            tuple(columns[n.lower()] for n in view.cluster_by), tuple(columns[n.lower()] for n in view.partitioned_by), named
        )

    def _called(self, functions: UserFunctions, definition: ViewDeclaration, state: CatalogState) -> tuple[str, ...]:
        """The user's functions that a view calls, itself or through a plain view that it reads."""
        return called_in(
            [definition.sql, *_plain_views_in(state, definition.sql).values()],
            Catalyst(self._spark, {}, {}, functions).user_functions(),
        )

    def planned_again(self, state: CatalogState, view: ViewEntry) -> CatalogState:
        """The state with a view planned on its inputs as they are now, where those are not what it was planned on.

        Not written. A view that is about to be built has a folder of its own: one that an earlier try has left is not used.

        Raises
        ------
        PlanError : it cannot be planned on them.
        """
        working = state.working
        if not view.planned_on or view.planned_on != self._planned_on(working, view.query, view.reads):
            planned = replace(self.plan(working, _declaration(view)), costs=view.costs, problem=view.problem)
            return _with_table_ids(state, planned).with_rebuild(planned)
        return state.with_rebuild(view.restarted()) if is_table(self._warehouse.state_path(view)) else state

    def declare(self, views: Sequence[ViewDeclaration], plain_views: Sequence[PlainView] = ()) -> CatalogState:
        """Make views known, all or none: new ones, and edited ones, which are to be rebuilt with the views over them.

        Parameters
        ----------
        views, plain_views : upstream first.

        Raises
        ------
        DeclarationError, PlanError : one cannot be planned, or one that reads an edited one cannot be any more.
        """
        return self._patiently(partial(self._declare, views, plain_views))

    def _declare(self, views: Sequence[ViewDeclaration], plain_views: Sequence[PlainView]) -> CatalogState:
        state = before = self.swept()
        changed: list[str] = []
        edited = [p for p in plain_views if state.plain_views.get(p.name) != p]
        for plain in edited:
            state = self._with_plain_view(state, plain)
        readers = [n for n, v in state.working.views.items() if any(_inlined(state, v.query, p.name) for p in edited)]
        for view in views:
            entry = state.working.views.get(view.name)
            if entry is None:
                self._check_free(state, view.name, besides="")
                entry = self.plan(state.working, view)
                state = _with_table_ids(state, entry).with_view(entry)
            elif has_query_of(entry, view):
                state = _with_options(state, view)
            else:
                entry = self.plan(state.working, view)
                state = _with_options(_with_table_ids(state, entry).with_rebuild(entry), view)
                changed.append(view.name)
        over = {*with_dependents(state, changed), *readers} - set(changed)
        state = self._planned_again_with(state, over, ", ".join([*changed, *(p.name for p in edited)]))
        return state if state == before else self._commit(before, state)

    def _with_plain_view(self, state: CatalogState, plain: PlainView) -> CatalogState:
        check_name(plain.name, "view")
        self._check_free(state, plain.name, besides="plain view")
        others = replace(state, plain_views={k: v for k, v in state.plain_views.items() if k != plain.name})
        if _inlined(others, plain.query, plain.name):
            raise DeclarationError(f"view {plain.name} reads itself; a view can only read sources and other views")
        self._analyse(others, plain.query)
        state = state.with_plain_view(plain)
        for reader in state.plain_views.values():
            if reader.name != plain.name and _inlined(state, reader.query, plain.name):
                try:
                    self._analyse(state, reader.query)
                except RelstateError as error:
                    raise DeclarationError(
                        f"view {reader.name} cannot be read with {plain.name} as declared now: {error}; edit or drop "
                        f"{reader.name} as well"
                    ) from error
        return state

    def _analyse(self, state: CatalogState, query: str) -> None:
        relations = self.relations(state.working, _named_in(state, query))
        Catalyst(self._spark, relations, _plain_views_in(state, query), self._warehouse.functions).analyse(query)

    def _planned_again_with(self, state: CatalogState, names: Iterable[str], edited: str) -> CatalogState:
        """The state with some views, and those over them, planned again on what was edited; the next run rebuilds them."""
        wanted = set(with_dependents(state, names))
        for name in topological(state.working):
            if name not in wanted:
                continue
            try:
                entry = self.plan(state.working, _declaration(state.working.views[name]))
            except RelstateError as error:
                raise DeclarationError(
                    f"view {name} cannot be planned on {edited} as declared now: {error}; edit or drop {name} as well"
                ) from error
            state = _with_table_ids(state, entry).with_rebuild(entry)
        return state

    def add_view(self, definition: ViewDeclaration) -> CatalogState:
        """Plan a view and register it; it is backfilled by the next run that includes it."""
        self._check_free(self._warehouse.read(), definition.name, besides="")
        return self.declare([definition])

    def drop(self, name: str, kind: str) -> CatalogState:
        """Drop a source, view or materialized view, and the files that the warehouse made for it.

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
        if name not in of_kind[kind]:
            raise DeclarationError(f"there is no {kind} named {name} in this warehouse")
        dependents = self.dependents(state, name)
        if dependents:
            raise DeclarationError(f"{name} cannot be dropped: {', '.join(dependents)} depend on it; drop those first")
        made: list[str] = []
        if kind == "view":
            made = [self._warehouse.view_path(name), self._warehouse.states_path(name)]
        elif kind == "source" and state.sources[name].managed:
            made = [state.sources[name].path]
        garbage = {self._warehouse.inside(path): table_id(path) for path in made}
        self._commit(state, replace(state.without(name), garbage={**state.garbage, **garbage}))
        failpoints.reached("inside_drop")
        return self.swept()

    def swept(self) -> CatalogState:
        """The catalog's state, once the files of what was dropped are gone."""
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
            if plain.name != name and _mentions(plain.query, name):
                found.append(plain.name)
        if name in state.plain_views:
            found += [v.name for v in state.views.values() if _mentions(v.query, name)]
        return sorted(set(found))

    def relations(self, state: CatalogState, names: Collection[str]) -> dict[str, Relation]:
        """Sources and views, of those that are named, as the planner sees them."""
        found = {}
        for source in (state.sources[name] for name in names if name in state.sources):
            try:
                found[source.name] = source_relation(source, self._warehouse.source(source).facts())
            except SourceError:
                continue  # a source whose table is gone can only be dropped; a query that names it is refused
        found.update({name: view_relation(state.views[name]) for name in names if name in state.views})
        return found

    def _full_plan(
        self,
        definition: ViewDeclaration,
        relations: Mapping[str, Relation],
        state: CatalogState,
    ) -> Materialize:
        catalyst = Catalyst(self._spark, relations, _plain_views_in(state, definition.sql), self._warehouse.functions)
        analysed = catalyst.analyse(definition.sql)
        output = [(str(a.name()), type_ddl(a.dataType()), bool(a.nullable())) for a in items(analysed.output())]
        columns = tuple(Field(f"c{n}", data_type, nullable) for n, (_, data_type, nullable) in enumerate(output))
        reads = tuple(name for name in relations if _inlined(state, definition.sql, name))
        node = FullQuery(definition.sql, columns, reads, always=reads_current_time(catalyst.session, analysed))
        plan = Materialize(
            with_map_keys(node), tuple(OutputColumn(name, c.name) for (name, _, _), c in zip(output, columns, strict=True))
        )
        check_published_types(plan)
        return plan

    def _check_free(self, state: CatalogState, name: str, *, besides: str) -> None:
        for kind, taken in (("source", state.sources), ("plain view", state.plain_views), ("view", state.views)):
            clash = next((other for other in taken if other.lower() == name.lower()), None)
            if clash is not None and kind != besides:
                raise DeclarationError(f"there is a {kind} named {clash} already; drop it first or take another name")


def _mentions(query: str, name: str) -> bool:
    return name.lower() in {d.lower() for d in relations_named(query)}


def _plain_views_in(state: CatalogState, query: str) -> dict[str, str]:
    """The plain views that a query reads, itself or through others; each after those that it reads."""
    found: dict[str, str] = {}

    def visit(text: str) -> None:
        for plain in state.plain_views.values():
            if plain.name not in found and _mentions(text, plain.name):
                visit(plain.query)
                found[plain.name] = plain.query

    visit(query)
    return found


def _named_in(state: CatalogState, query: str) -> set[str]:
    """The sources and views that a query may name, itself or through plain views, as they are called."""
    texts = (query, *_plain_views_in(state, query).values())
    named = {name.lower() for text in texts for name in relations_named(text)}
    return {name for name in (*state.sources, *state.views) if name.lower() in named}


def _inlined(state: CatalogState, query: str, name: str) -> bool:
    """Whether a query reads a relation, itself or through plain views."""
    return any(_mentions(text, name) for text in (query, *_plain_views_in(state, query).values()))


def _declaration(view: ViewEntry) -> ViewDeclaration:
    """The declaration that a view was planned from."""
    return ViewDeclaration(
        name=view.name,
        query=view.query,
        comment=view.comment,
        cluster_by=view.layout.cluster_by,
        partitioned_by=view.layout.partitioned_by,
        column_comments=view.layout.column_comments,
        properties=view.properties,
    )


def _as_large(tables: Sequence[StateTableDesc], before: Sequence[StateTableDesc]) -> tuple[StateTableDesc, ...]:
    """State tables with as many vnodes as the same ones had before: what is rebuilt is about as large."""
    counts = {repr(table.schema): table.vnode_count for table in before}
    return tuple(replace(t, vnode_count=max(t.vnode_count, counts.get(repr(t.schema), 0))) for t in tables)


def _layout(view: ViewDeclaration) -> TableLayout:
    return TableLayout(view.cluster_by, view.partitioned_by, dict(view.column_comments))


def declares(state: CatalogState, view: ViewDeclaration) -> bool:
    """Whether a declaration is of a view as it is, options included; it is not being rebuilt."""
    known = state.views.get(view.name)
    if known is None or view.name in state.rebuilds or not has_query_of(known, view):
        return False
    return _with_options(state, view) == state


def has_query_of(known: ViewEntry, view: ViewDeclaration) -> bool:
    """Whether a declaration is of the view as it is, but for options that need no rebuild."""
    same_query = known.query == view.sql and known.refresh_policy == view.refresh_policy
    return same_query and _laid_out_by(known.layout) == _laid_out_by(_layout(view))


def _laid_out_by(layout: TableLayout) -> tuple[list[str], list[str]]:
    """The columns of a layout in lower case: their case makes no difference."""
    return [c.lower() for c in layout.cluster_by], [c.lower() for c in layout.partitioned_by]


def _with_options(state: CatalogState, view: ViewDeclaration) -> CatalogState:
    """The state with a view's comment and properties, which need no rebuild."""

    def updated(entry: ViewEntry) -> ViewEntry:
        layout = replace(entry.layout, column_comments=dict(view.column_comments))
        return replace(entry, comment=view.comment, properties=dict(view.properties), layout=layout)

    of_rebuild = state.rebuilds.get(view.name)
    if of_rebuild is not None:
        state = replace(state, rebuilds={**state.rebuilds, view.name: updated(of_rebuild)})
    return state.with_view(updated(state.views[view.name]))


def _with_table_ids(state: CatalogState, entry: ViewEntry) -> CatalogState:
    """The state after the table ids of a planned view were given out."""
    return replace(state, next_table_id=max([state.next_table_id, *(t.table_id + 1 for t in entry.tables)]))
