"""Declares sources and views in a warehouse, and drops them: what the catalog knows, checked before it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from jobs import failpoints
from jobs.catalog.entries import CatalogState, PlainView, SourceEntry, TableLayout, ViewEntry
from jobs.declare import ViewDeclaration, check_name
from jobs.epoch.protocol import with_dependents
from jobs.epoch.sessions import forget_table, meaning_of
from jobs.functions import UserFunctions, called_in
from jobs.planner.catalyst import Catalyst, type_ddl
from jobs.planner.current_time import reads_current_time
from jobs.planner.expressions import NotIncremental
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

#: Reasons for which `auto` does not fall back to full recomputation: the result would be another one every time.
_NEVER_FULL = frozenset({"non-deterministic"})


class Registry:
    """Adds to and removes from a warehouse's catalog.

    Every method returns the new catalog state, or raises and leaves the warehouse as it was.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark = spark
        self._warehouse = warehouse

    def add_source(self, entry: SourceEntry) -> CatalogState:
        """Register a Delta table as a source. Other indexes than before may be declared at any time."""
        check_name(entry.name, "source")
        state = self._warehouse.read()
        known = state.sources.get(entry.name)
        if known == entry:
            return state
        self._check_free(state, entry.name, besides="source")
        is_other = known is not None and replace(known, indexes=entry.indexes) != entry
        if is_other and state.dependents(entry.name):
            readers = ", ".join(state.dependents(entry.name))
            raise DeclarationError(
                f"source {entry.name} is declared otherwise than before ({known}), and {readers} read it; drop those first"
            )
        source_relation(entry, self._warehouse.source(entry).facts())
        return self._warehouse.catalog.write(state.with_source(entry))

    def add_plain_view(self, name: str, query: str, *, replace_existing: bool = False) -> CatalogState:
        """Register a view that is inlined where it is used."""
        check_name(name, "view")
        state = self._warehouse.read()
        self._check_free(state, name, besides="plain view" if replace_existing else "")
        others = replace(state, plain_views={k: v for k, v in state.plain_views.items() if k != name})
        catalyst = Catalyst(self._spark, self.relations(others), _queries(others), self._warehouse.functions)
        catalyst.analyse(query)
        return self._warehouse.catalog.write(state.with_plain_view(PlainView(name, query)))

    def plan(self, state: CatalogState, definition: ViewDeclaration) -> ViewEntry:
        """Plan a view without declaring it: its entry, with table ids as they would be allocated.

        Raises
        ------
        PlanError : Spark refuses the query, or the refresh policy asks for what is not possible.
        """
        check_name(definition.name, "view")
        others = state.without(definition.name)
        if _inlined(others, definition, definition.name):
            raise DeclarationError(f"view {definition.name} reads itself; a view can only read sources and other views")
        policy = definition.refresh_policy
        functions = self._warehouse.functions
        relations = self.relations(others)
        reason: str | None = None
        if policy == "full":
            plan, reason = self._full_plan(definition, relations, others), "the view's refresh.policy is full"
        else:
            try:
                plan = plan_view(self._spark, definition.sql, relations, _queries(others), functions)
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
        is_full = isinstance(plan.child, FullQuery)
        return ViewEntry(
            name=definition.name,
            query=definition.sql,
            strategy="full" if is_full else "incremental",
            reason=reason,
            plan=plan,
            tables=tables,
            reads=relations_read(plan),
            settings=meaning_of(self._spark),
            comment=definition.comment,
            properties=dict(definition.properties),
            functions=() if functions is None else self._called(functions, definition, others),
            planned_on=self._planned_on(others, relations_read(plan)),
            layout=self._checked_layout(definition, plan),
        )

    def _planned_on(self, state: CatalogState, reads: Sequence[str]) -> str:
        """A digest of relations as a plan depends on them: columns, keys, and whether they are only appended to."""
        known = self.relations(state, reads)
        told = [repr(known.get(name)) for name in sorted(reads)] + [repr(sorted(_queries(state).items()))]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()

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
        inlined = [v.query for v in state.plain_views.values() if _inlined(state, definition, v.name)]
        return called_in([definition.sql, *inlined], Catalyst(self._spark, {}, {}, functions).user_functions())

    def planned_again(self, state: CatalogState, view: ViewEntry) -> CatalogState:
        """The state with a view planned on its inputs as they are now, where those are not what it was planned on.

        Not written. A view that is about to be built has a folder of its own: one that an earlier try has left is not used.

        Raises
        ------
        PlanError : it cannot be planned on them.
        """
        working = state.working
        if not view.planned_on or view.planned_on != self._planned_on(working, view.reads):
            planned = replace(self.plan(working, _declaration(view)), costs=view.costs, problem=view.problem)
            return _with_table_ids(state, planned).with_rebuild(planned)
        return state.with_rebuild(view.restarted()) if is_table(self._warehouse.state_path(view)) else state

    def declare(self, views: Sequence[ViewDeclaration]) -> CatalogState:
        """Make views known, all or none: new ones, and edited ones, which are to be rebuilt with the views over them.

        Parameters
        ----------
        views : upstream first.

        Raises
        ------
        DeclarationError, PlanError : one cannot be planned, or one that reads an edited one cannot be any more.
        """
        state = before = self.swept()
        changed: list[str] = []
        for view in views:
            known = state.working.views.get(view.name)
            if known is None:
                self._check_free(state, view.name, besides="")
                entry = self.plan(state.working, view)
                state = _with_table_ids(state, entry).with_view(entry)
            elif _declares(known, view):
                state = _with_options(state, view)
            else:
                entry = self.plan(state.working, view)
                state = _with_options(_with_table_ids(state, entry).with_rebuild(entry), view)
                changed.append(view.name)
        state = self._planned_over(state, changed)
        return state if state == before else self._warehouse.catalog.write(state)

    def _planned_over(self, state: CatalogState, changed: Sequence[str]) -> CatalogState:
        """The state with the views over edited ones planned again as well."""
        over = set(with_dependents(state, changed)) - set(changed)
        for name in topological(state.working):
            if name not in over:
                continue
            view = state.working.views[name]
            try:
                entry = self.plan(state.working, _declaration(view))
            except RelstateError as error:
                edited = ", ".join(n for n in changed if name in with_dependents(state, [n]))
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
        self._warehouse.catalog.write(replace(state.without(name), garbage=garbage))
        failpoints.reached("inside_drop")
        return self.swept()

    def swept(self) -> CatalogState:
        """The catalog's state, once the files of what was dropped are gone."""
        state = self._warehouse.read()
        if not state.garbage:
            return state
        for inside, identity in state.garbage.items():
            path = f"{self._warehouse.root}/{inside}"
            # A table that somebody else has made there since is not ours to delete.
            if table_id(path) in ("", identity):
                delete_folder(path)
                forget_table(self._spark, path)
        return self._warehouse.catalog.write(replace(state, garbage={}))

    def dependents(self, state: CatalogState, name: str) -> list[str]:
        """Materialized and plain views that read a name."""
        found = state.dependents(name)
        for plain in state.plain_views.values():
            if plain.name != name and _mentions(plain.query, name):
                found.append(plain.name)
        if name in state.plain_views:
            found += [v.name for v in state.views.values() if _mentions(v.query, name)]
        return sorted(set(found))

    def relations(self, state: CatalogState, names: Sequence[str] | None = None) -> dict[str, Relation]:
        """The sources and views that a query may name; only some of them, if it is known which matter."""
        found = {}
        for source in state.sources.values():
            if names is not None and source.name not in names:
                continue
            try:
                found[source.name] = source_relation(source, self._warehouse.source(source).facts())
            except SourceError:
                continue  # a source whose table is gone can only be dropped; a query that names it is refused
        found.update({v.name: view_relation(v) for v in state.views.values() if names is None or v.name in names})
        return found

    def _full_plan(
        self,
        definition: ViewDeclaration,
        relations: Mapping[str, Relation],
        state: CatalogState,
    ) -> Materialize:
        catalyst = Catalyst(self._spark, relations, _queries(state), self._warehouse.functions)
        analysed = catalyst.analyse(definition.sql)
        output = [(str(a.name()), type_ddl(a.dataType()), bool(a.nullable())) for a in items(analysed.output())]
        columns = tuple(Field(f"c{n}", data_type, nullable) for n, (_, data_type, nullable) in enumerate(output))
        reads = tuple(name for name in relations if _mentions(definition.sql, name) or _inlined(state, definition, name))
        node = FullQuery(definition.sql, columns, reads, always=reads_current_time(catalyst.session, analysed))
        plan = Materialize(node, tuple(OutputColumn(name, c.name) for (name, _, _), c in zip(output, columns, strict=True)))
        check_published_types(plan)
        return plan

    def _check_free(self, state: CatalogState, name: str, *, besides: str) -> None:
        for kind, taken in (("source", state.sources), ("plain view", state.plain_views), ("view", state.views)):
            clash = next((other for other in taken if other.lower() == name.lower()), None)
            if clash is not None and kind != besides:
                raise DeclarationError(f"there is a {kind} named {clash} already; drop it first or take another name")


def _queries(state: CatalogState) -> dict[str, str]:
    return {v.name: v.query for v in state.plain_views.values()}


def _mentions(query: str, name: str) -> bool:
    return name.lower() in {d.lower() for d in relations_named(query)}


def _inlined(state: CatalogState, definition: ViewDeclaration, name: str) -> bool:
    """Whether the query reads a relation through plain views."""
    pending, seen = [definition.sql], set()
    while pending:
        query = pending.pop()
        if _mentions(query, name):
            return True
        for plain in state.plain_views.values():
            if plain.name not in seen and _mentions(query, plain.name):
                seen.add(plain.name)
                pending.append(plain.query)
    return False


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


def _layout(view: ViewDeclaration) -> TableLayout:
    return TableLayout(view.cluster_by, view.partitioned_by, dict(view.column_comments))


def _declares(known: ViewEntry, view: ViewDeclaration) -> bool:
    """Whether a declaration is of the view as it is, but for options that need no rebuild."""
    same_query = known.query == view.sql and known.refresh_policy == view.refresh_policy
    return same_query and replace(known.layout, column_comments={}) == replace(_layout(view), column_comments={})


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
