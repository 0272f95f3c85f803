"""Declares sources and views in a warehouse, and drops them: what the catalog knows, checked before it is written."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.catalog.entries import CatalogState, PlainView, SourceEntry, ViewEntry
from jobs.declare import ViewDeclaration, check_name, dependencies
from jobs.epoch.sessions import meaning_of
from jobs.functions import UserFunctions, called_in
from jobs.planner.catalyst import Catalyst, type_ddl
from jobs.planner.current_time import reads_current_time
from jobs.planner.expressions import NotIncremental
from jobs.planner.nodes import Field, FullQuery, Materialize, OutputColumn, relations_read, walk
from jobs.planner.planning import plan_view
from jobs.planner.relations import Relation
from jobs.planner.state_tables import infer_state_tables
from jobs.planner.trees import items
from jobs.relations import source_relation, view_relation
from jobs.warehouse import Warehouse
from state_lib.errors import DeclarationError, PlanError, SourceError
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
        )

    def _called(self, functions: UserFunctions, definition: ViewDeclaration, state: CatalogState) -> tuple[str, ...]:
        """The user's functions that a view calls, itself or through a plain view that it reads."""
        inlined = [v.query for v in state.plain_views.values() if _inlined(state, definition, v.name)]
        return called_in([definition.sql, *inlined], Catalyst(self._spark, {}, {}, functions).user_functions())

    def add_view(self, definition: ViewDeclaration) -> CatalogState:
        """Plan a view and register it; it is backfilled by the next run that includes it."""
        state = self._warehouse.read()
        self._check_free(state, definition.name, besides="")
        entry = self.plan(state, definition)
        next_id = max([state.next_table_id, *(t.table_id + 1 for t in entry.tables)])
        return self._warehouse.catalog.write(replace(state.with_view(entry), next_table_id=next_id))

    def replace_view(self, definition: ViewDeclaration) -> CatalogState:
        """Plan an edited view again; the next run rebuilds it and the views over it."""
        state = self._warehouse.read()
        known = state.views[definition.name]
        entry = replace(self.plan(state, definition), generation=known.generation + 1)
        next_id = max([state.next_table_id, *(t.table_id + 1 for t in entry.tables)])
        state = replace(state.with_view(entry), next_table_id=next_id)
        return self._warehouse.catalog.write(restart(state, state.dependents(definition.name)))

    def drop(self, name: str, kind: str) -> CatalogState:
        """Drop a source, view or materialized view, and the files that the warehouse made for it.

        Raises
        ------
        DeclarationError : there is no such thing, or something depends on it.
        """
        check_name(name)
        state = self._warehouse.read()
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
        written = self._warehouse.catalog.write(state.without(name))
        if self._warehouse.is_local:
            if kind == "view":
                shutil.rmtree(self._warehouse.view_path(name), ignore_errors=True)
                shutil.rmtree(Path(self._warehouse.state_path(state.views[name])).parent, ignore_errors=True)
            elif kind == "source" and state.sources[name].managed:
                shutil.rmtree(state.sources[name].path, ignore_errors=True)
        return written

    def dependents(self, state: CatalogState, name: str) -> list[str]:
        """Materialized and plain views that read a name."""
        found = state.dependents(name)
        for plain in state.plain_views.values():
            if plain.name != name and _mentions(plain.query, name):
                found.append(plain.name)
        if name in state.plain_views:
            found += [v.name for v in state.views.values() if _mentions(v.query, name)]
        return sorted(set(found))

    def relations(self, state: CatalogState) -> dict[str, Relation]:
        """Every source and view that a query may name."""
        found = {}
        for source in state.sources.values():
            try:
                found[source.name] = source_relation(source, self._warehouse.source(source).facts())
            except SourceError:
                continue  # a source whose table is gone can only be dropped; a query that names it is refused
        found.update({v.name: view_relation(v) for v in state.views.values()})
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
        return Materialize(node, tuple(OutputColumn(name, c.name) for (name, _, _), c in zip(output, columns, strict=True)))

    def _check_free(self, state: CatalogState, name: str, *, besides: str) -> None:
        for kind, taken in (("source", state.sources), ("plain view", state.plain_views), ("view", state.views)):
            clash = next((other for other in taken if other.lower() == name.lower()), None)
            if clash is not None and kind != besides:
                raise DeclarationError(f"there is a {kind} named {clash} already; drop it first or take another name")


def _queries(state: CatalogState) -> dict[str, str]:
    return {v.name: v.query for v in state.plain_views.values()}


def _mentions(query: str, name: str) -> bool:
    return name.lower() in {d.lower() for d in dependencies(query)}


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


def restart(state: CatalogState, names: Sequence[str]) -> CatalogState:
    """Send views, and the views over them, back to before their first epoch, in a new generation."""
    pending = list(names)
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        if name not in state.views:
            raise DeclarationError(f"no materialized view named {name} to rebuild")
        seen.add(name)
        view = state.views[name]
        state = state.with_view(replace(view, epochs=(), generation=view.generation + 1, merged_rows={}))
        pending += state.dependents(name)
    return state
