"""Planner of views: a declaration becomes a catalog entry, on present sources and views."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.plans import Planned
from relstate_dagster.jobs.catalog.relations import source_relation, view_relation
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import ViewDeclaration, check_name
from relstate_dagster.jobs.declare.changelogs import has_history, is_changelog_view
from relstate_dagster.jobs.declare.model import is_by_days, keeps_float_rows
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.declare.query_function import Query, QueryFunction, digest_text
from relstate_dagster.jobs.declare.state_ttl import ttl_of
from relstate_dagster.jobs.engine.functions import UserFunctions, called_in
from relstate_dagster.jobs.engine.instants import is_known_zone
from relstate_dagster.jobs.engine.spark_connect import is_remote
from relstate_dagster.jobs.engine.spark_release import spark_release
from relstate_dagster.jobs.plan.aggregates.registry import with_rows_of_groups
from relstate_dagster.jobs.plan.nodes import Field, FullQuery, Materialize, OutputColumn, relations_read
from relstate_dagster.jobs.plan.plan_version import PLAN_VERSION
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.plan.stateful_plan import StatefulPlan
from relstate_dagster.jobs.planner.catalyst import Catalyst, type_ddl
from relstate_dagster.jobs.planner.current_time import reads_current_time
from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from relstate_dagster.jobs.planner.first_row import with_changelog_checks
from relstate_dagster.jobs.planner.map_keys import with_map_keys
from relstate_dagster.jobs.planner.planning import plan_view
from relstate_dagster.jobs.planner.query_frames import UnknownRelation
from relstate_dagster.jobs.planner.query_settings import meaning_of
from relstate_dagster.jobs.planner.query_text import named_among, relations_named
from relstate_dagster.jobs.planner.trees import items
from relstate_dagster.jobs.planner.types_check import check_published_types
from relstate_dagster.jobs.registration.check_planner import check_declared, check_references
from relstate_dagster.jobs.registration.planned_by import another_planner
from relstate_dagster.jobs.targets.declared_table import TableLayout
from relstate_dagster.jobs.view_epoch.refresh_choice import follows_from_rows
from relstate_dagster.state_lib.errors import DeclarationError, PlanError, SourceError
from relstate_dagster.state_lib.lake.folders import is_table
from relstate_dagster.state_lib.table_schema import StateTableDesc

_WORDS = re.compile(r"\w+")
#: Reasons for which `auto` does not fall back to full recomputation: the result would be another one every time.
_NEVER_FULL = frozenset({"non-deterministic"})


class ViewPlanner:
    """Plans views of a warehouse; writes nothing."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        self._spark = spark
        self._warehouse = warehouse

    def plan(self, state: CatalogState, definition: ViewDeclaration) -> ViewEntry:
        """Plan a view without declaring it.

        Its entry has table ids as they would be allocated.

        Raises
        ------
        PlanError : Spark refuses the query, or the refresh policy asks for what is not possible.
        DeclarationError : a clause or a check names what the view does not have.
        """
        check_name(definition.name, "view")
        if is_remote(self._spark):
            raise PlanError(
                f"view {definition.name} is to be planned, which Spark Connect cannot do: run `relstate plan --store` with a "
                "Spark of this machine (RELSTATE_MASTER=local[*]), and then this again"
            )
        others = state.without(definition.name)
        definition = replace(definition, query=self.with_reads(others, definition.query))
        if inlined(others, definition.named_query, definition.name):
            raise DeclarationError(f"view {definition.name} reads itself; a view can only read sources and other views")
        policy = definition.refresh_policy
        functions = self._warehouse.functions
        relations = self.relations(others, named_in(others, definition.named_query))
        reason: str | None = None
        plan = self._plan_by_days(definition, relations, others) if is_by_days(definition.properties) else None
        if policy == "full":
            plan, reason = self._full_plan(definition, relations, others), "the view's refresh.policy is full"
        elif plan is None:
            try:
                plan = plan_view(
                    self._spark, definition.named_query, relations, plain_views_in(others, definition.named_query), functions
                )
            except NotIncremental as refusal:
                if policy == "incremental" or refusal.code in _NEVER_FULL:
                    hint = "set TBLPROPERTIES ('refresh.policy' = 'full') to have it recomputed at every epoch"
                    raise PlanError(
                        f"view {definition.name} cannot be maintained incrementally: {refusal}; {hint}"
                    ) from refusal
                of_a_day = self._plan_of_a_day(definition, relations, others) if refusal.code == "time-dependent" else None
                plan = of_a_day or self._full_plan(definition, relations, others)
                reason = None if of_a_day else str(refusal)
        if is_changelog_view(definition.properties):
            if reason is not None:
                raise PlanError(f"the changes of {definition.name} cannot be followed: {reason}")
            plan = plan if has_history(definition.properties) else with_changelog_checks(plan)
        stateful = StatefulPlan.allocate(_kept_as_declared(definition, plan), state.next_table_id)
        known = state.views.get(definition.name)
        if known is not None:
            stateful = stateful.with_tables(_as_large(stateful.tables, known.tables))
        is_full = isinstance(plan.child, FullQuery)
        entry = ViewEntry(
            name=definition.name,
            query=definition.named_query,
            strategy="full" if is_full else "incremental",
            reason=reason,
            planned=Planned.of(stateful),
            reads=relations_read(plan),
            settings=meaning_of(self._spark),
            comment=definition.comment,
            properties=dict(definition.properties),
            functions=() if functions is None else self._called(functions, definition, others),
            planned_on=self._planned_on(others, definition.named_query, relations_read(plan)),
            plan_version=PLAN_VERSION,
            planned_on_spark=spark_release(),
            inlined=plain_views_in(others, definition.named_query),
            layout=self._checked_layout(definition, plan),
        )
        self.check_declared(entry)
        return entry

    def check_declared(self, view: ViewEntry) -> None:
        """Look whether the checks that a view declares can be made on its columns.

        Raises
        ------
        DeclarationError : one cannot.
        """
        check_declared(self._spark, self._warehouse.functions, view)

    def check_references(self, state: CatalogState, view: ViewEntry) -> None:
        """Check that tables which a view's checks refer to exist.

        Raises
        ------
        DeclarationError : it is not.
        """
        check_references(self._spark, state, view, self.relations)

    def planned_again(self, state: CatalogState, view: ViewEntry) -> CatalogState:
        """The state with a view planned again, if its inputs or the planner changed.

        Not written. A view that is about to be built has a folder of its own: one that an earlier try has left is not used,
        but for slices that were completed.

        Raises
        ------
        PlanError : it cannot be planned on them.
        """
        working = state.working
        is_as_planned = view.planned_on == self._planned_on(working, view.query, view.reads)
        if not is_as_planned or another_planner(view) is not None:
            planned = replace(self.plan(working, declaration_of(view)), costs=view.costs, problem=view.problem)
            return with_table_ids(state, planned).with_rebuild(planned)
        is_left = view.built_until is None and is_table(self._warehouse.state_path(view))
        return state.with_rebuild(view.restarted()) if is_left else state

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

    def analyse(self, state: CatalogState, query: Query) -> None:
        """Have Spark analyse a query; PlanError where it refuses it."""
        relations = self.relations(state.working, named_in(state, query))
        Catalyst(self._spark, relations, plain_views_in(state, query), self._warehouse.functions).analyse(query)

    def with_reads(self, state: CatalogState, query: Query) -> Query:
        """A function's query with the names of what it reads.

        They are found by calling it on the relations that it asks for.

        Raises
        ------
        UnknownRelation : it reads what is neither a source nor a view.
        PlanError : it fails, or reads or calls what a view may not.
        """
        if isinstance(query, str):
            return query
        known = {name.lower(): name for name in (*state.sources, *state.views, *state.plain_views)}
        words = set(_WORDS.findall(query.source.lower())) if query.reads is None else {r.lower() for r in query.reads}
        asked = tuple(known[word] for word in known if word in words)
        while True:
            trial = replace(query, reads=asked)
            catalyst = Catalyst(
                self._spark,
                self.relations(state, named_in(state, trial)),
                plain_views_in(state, trial),
                self._warehouse.functions,
            )
            try:
                named = catalyst.named_by(trial, known.values())
            except UnknownRelation as error:
                name = known.get(error.relation.lower())
                if name is None or name in asked:
                    raise
                asked = (*asked, name)
                continue
            # Spark's catalog may have a table of the same name, which is another one.
            elsewhere = tuple(name for name in named if name not in asked)
            if not elsewhere:
                catalyst.analyse(trial)
                return replace(query, reads=named)
            asked = (*asked, *elsewhere)

    @property
    def _zone(self) -> str:
        return meaning_of(self._spark)["spark.sql.session.timeZone"]

    def _plan_by_days(
        self, definition: ViewDeclaration, relations: Mapping[str, Relation], state: CatalogState
    ) -> Materialize | None:
        """Plan a view whose time is the start of the day.

        Raises
        ------
        PlanError : the start of a day is not known here.
        """
        if not is_known_zone(self._zone):
            raise PlanError(
                f"view {definition.name}: 'refresh.time' = 'day' needs a time zone that Python knows, and not {self._zone}: "
                "name it by region, as in Europe/Berlin (spark.sql.session.timeZone)"
            )
        return self._plan_of_a_day(definition, relations, state) if definition.refresh_policy == "auto" else None

    def _plan_of_a_day(
        self, definition: ViewDeclaration, relations: Mapping[str, Relation], state: CatalogState
    ) -> Materialize | None:
        """Plan a view that reads the date alone; ``None`` if it cannot be recomputed.

        It is, each time that the date changes.
        """
        if is_changelog_view(definition.properties) or any(
            source.watermark for name, source in state.sources.items() if name in relations
        ):
            return None
        if not is_known_zone(self._zone):
            return None
        try:
            plan = plan_view(
                self._spark,
                definition.named_query,
                relations,
                plain_views_in(state, definition.named_query),
                self._warehouse.functions,
                is_of_a_day=True,
                by_days=is_by_days(definition.properties),
            )
        except NotIncremental:
            return None
        has_ttl = ttl_of(definition.properties, definition.name) is not None
        return None if has_ttl or not follows_from_rows(plan, state.sources) else plan

    def _full_plan(
        self,
        definition: ViewDeclaration,
        relations: Mapping[str, Relation],
        state: CatalogState,
    ) -> Materialize:
        catalyst = Catalyst(self._spark, relations, plain_views_in(state, definition.named_query), self._warehouse.functions)
        analysed = catalyst.analyse(definition.named_query)
        output = [(str(a.name()), type_ddl(a.dataType()), bool(a.nullable())) for a in items(analysed.output())]
        columns = tuple(Field(f"c{n}", data_type, nullable) for n, (_, data_type, nullable) in enumerate(output))
        reads = tuple(name for name in relations if inlined(state, definition.named_query, name))
        node = FullQuery(
            digest_text(definition.named_query), columns, reads, always=reads_current_time(catalyst.session, analysed)
        )
        plan = Materialize(
            with_map_keys(node), tuple(OutputColumn(name, c.name) for (name, _, _), c in zip(output, columns, strict=True))
        )
        check_published_types(plan)
        return plan

    def _planned_on(self, state: CatalogState, query: Query, reads: Sequence[str]) -> str:
        """Digest of relations as a plan depends on them.

        Columns, keys, and whether they are only appended to.
        """
        known = self.relations(state, reads)
        parts = [repr(known.get(name)) for name in sorted(reads)] + [
            repr({name: digest_text(q) for name, q in plain_views_in(state, query).items()})
        ]
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
        return TableLayout(
            tuple(columns[n.lower()] for n in view.cluster_by),
            tuple(columns[n.lower()] for n in view.partitioned_by),
            column_comments(view, columns.values()),
        )

    def _called(self, functions: UserFunctions, definition: ViewDeclaration, state: CatalogState) -> tuple[str, ...]:
        """The user's functions that a view calls, also through plain views."""
        queries = [definition.named_query, *plain_views_in(state, definition.named_query).values()]
        known = Catalyst(self._spark, {}, {}, functions).user_functions
        called = {name for query in queries if not isinstance(query, str) for name in _named_in(query, known)}
        return tuple(sorted({*called, *called_in(filter(_is_text, queries), known)}))


def _kept_as_declared(definition: ViewDeclaration, plan: Materialize) -> Materialize:
    """The plan with the state that the view's properties ask for."""
    return replace(plan, child=with_rows_of_groups(plan.child)) if keeps_float_rows(definition.properties) else plan


def _is_text(query: Query) -> TypeGuard[str]:
    return isinstance(query, str)


def _named_in(query: QueryFunction, names: Iterable[str]) -> list[str]:
    """Names that the text of a function has, as in ``call_function("name", …)``."""
    words = set(_WORDS.findall(query.source.lower()))
    return [name for name in names if name.lower() in words]


def mentions(query: Query, name: str) -> bool:
    """Whether a query names a relation itself, in any case."""
    return name.lower() in {d.lower() for d in relations_named(query)}


def plain_views_in(state: CatalogState, query: Query) -> dict[str, Query]:
    """Plain views that a query reads, also through others.

    Each comes after those that it reads.
    """
    found: dict[str, Query] = {}

    def visit(text: Query) -> None:
        for plain in state.plain_views.values():
            if plain.name not in found and mentions(text, plain.name):
                visit(plain.query)
                found[plain.name] = plain.query

    visit(query)
    return found


def named_in(state: CatalogState, query: Query) -> set[str]:
    """Sources and views that a query may name, also through plain views."""
    return named_among((query, *plain_views_in(state, query).values()), (*state.sources, *state.views))


def inlined(state: CatalogState, query: Query, name: str) -> bool:
    """Whether a query reads a relation, itself or through plain views."""
    return any(mentions(text, name) for text in (query, *plain_views_in(state, query).values()))


def declaration_of(view: ViewEntry) -> ViewDeclaration:
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


def column_comments(view: ViewDeclaration, columns: Iterable[str]) -> dict[str, str]:
    """Comments on the columns of a view, by their names in its plan."""
    known = tuple(columns)
    described = {as_declared(name, known): comment for name, comment in view.described_columns.items()}
    listed = {as_declared(name, known): comment for name, comment in view.column_comments.items()}
    return {**{name: comment for name, comment in described.items() if name in known}, **listed}


def layout_of(view: ViewDeclaration) -> TableLayout:
    """The layout of the published table that a view declares."""
    return TableLayout(view.cluster_by, view.partitioned_by, dict(view.column_comments))


def _as_large(tables: Sequence[StateTableDesc], before: Sequence[StateTableDesc]) -> dict[int, StateTableDesc]:
    """State tables, by id, with the vnode counts of equal ones before.

    Rebuilt state is about as large.
    """
    counts = {repr(table.schema): table.vnode_count for table in before}
    return {t.table_id: replace(t, vnode_count=max(t.vnode_count, counts.get(repr(t.schema), 0))) for t in tables}


def with_table_ids(state: CatalogState, entry: ViewEntry) -> CatalogState:
    """The state after the table ids of a planned view were given out."""
    return replace(state, next_table_id=max([state.next_table_id, *(t.table_id + 1 for t in entry.tables)]))
