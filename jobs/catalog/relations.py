"""Sources and views as the planner and the operators see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from relstate_dagster.jobs.catalog.entries import SourceEntry, ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.declare.changelogs import is_changelog_view
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.state_lib.char_columns import char_type
from relstate_dagster.state_lib.constants import COMMIT_VERSION, ROW_ID
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.log import TableFacts
from relstate_dagster.state_lib.sql_text import quoted

_ROW_ID_FIELD = Field(ROW_ID, "bigint", False)


def with_columns_named(entry: SourceEntry, facts: TableFacts) -> SourceEntry:
    """A source whose key and indexes use the column names of its table."""
    names = [field.name for field in struct_of(facts.schema_json).fields]
    return replace(
        entry,
        primary_key=tuple(as_declared(name, names) for name in entry.primary_key),
        indexes=tuple(dict.fromkeys(as_declared(name, names) for name in entry.indexes)),
    )


def source_relation(entry: SourceEntry, facts: TableFacts) -> Relation:
    """A source as the planner sees it.

    Keyed by its primary key, by Serial row ids if keyless and append-only, else a multiset.
    """
    columns, char_types = schema_fields(facts.schema_json), _char_types(struct_of(facts.schema_json))
    missing = [c for c in entry.primary_key if c not in {f.name for f in columns}]
    if missing:
        raise DeclarationError(f"source {entry.name}: primary key columns {missing} are not columns of {entry.path}")
    unknown = [c for c in entry.indexes if c not in {f.name for f in columns}]
    if unknown:
        raise DeclarationError(f"source {entry.name}: an index is declared by {unknown}, which are not columns of {entry.path}")
    append_only = entry.append_only or facts.is_append_only
    if entry.is_changelog:
        if any(f.name.lower() == COMMIT_VERSION for f in columns):
            raise DeclarationError(
                f"source {entry.name}: {entry.path} has a column {COMMIT_VERSION}, as the version of a row's commit "
                "is called here; rename it"
            )
        return Relation(entry.name, (*columns, Field(COMMIT_VERSION, "bigint", False)), None, True, char_types=char_types)
    if entry.primary_key:
        # A NULL in a key is refused wherever one comes in.
        columns = tuple(replace(f, nullable=False) if f.name in entry.primary_key else f for f in columns)
        return Relation(entry.name, columns, entry.primary_key, append_only, char_types=char_types)
    if append_only:
        return Relation(entry.name, columns, (ROW_ID,), True, (_ROW_ID_FIELD,), char_types=char_types)
    return Relation(entry.name, columns, None, False, char_types=char_types)


def schema_fields(schema_json: str) -> tuple[Field, ...]:
    """Columns of a Delta schema, as plan fields."""
    return tuple(Field(f.name, f.dataType.simpleString(), f.nullable) for f in struct_of(schema_json).fields)


def _char_types(schema: StructType) -> tuple[tuple[str, str], ...]:
    found = ((field.name, char_type(field)) for field in schema.fields)
    return tuple((name, declared) for name, declared in found if declared is not None)


def view_relation(entry: ViewEntry) -> Relation:
    """A materialized view as an input: visible columns, then hidden key columns."""
    plan = entry.plan
    names = _names_in_relation(entry)
    visible = tuple(Field(o.name, *_type_of(entry, o.column)) for o in plan.output)
    shown = {o.column for o in plan.output}
    hidden = tuple(Field(names[c], *_type_of(entry, c)) for c in plan.column_names if c not in shown)
    key = None if plan.stream_key is None else tuple(names[c] for c in plan.stream_key)
    return Relation(entry.name, visible, key, plan.append_only, hidden, is_view=True)


def view_columns(entry: ViewEntry) -> list[str]:
    """SQL for the columns of the view's own state table, named as by :func:`view_relation`."""
    names = _names_in_relation(entry)
    columns = [f"{quoted(o.column)} AS {quoted(o.name)}" for o in entry.plan.output]
    shown = {o.column for o in entry.plan.output}
    return columns + [f"{quoted(c)} AS {quoted(names[c])}" for c in entry.plan.column_names if c not in shown]


def state_column(entry: ViewEntry, name: str) -> str:
    """The column of the view's own state table that :func:`view_relation` gives a name."""
    return next(column for column, called in _names_in_relation(entry).items() if called == name)


def _names_in_relation(entry: ViewEntry) -> dict[str, str]:
    names: dict[str, str] = {}
    for output in entry.plan.output:
        names.setdefault(output.column, output.name)
    used = {o.name.lower() for o in entry.plan.output}
    for column in entry.plan.column_names:
        if column not in names:
            name = column
            while name.lower() in used:
                name = f"_{name}"
            used.add(name.lower())
            names[column] = name
    return names


def _type_of(entry: ViewEntry, column: str) -> tuple[str, bool]:
    field = entry.plan.field_named(column)
    return field.data_type, field.nullable


def topological(state: CatalogState) -> list[str]:
    """All views, each after the views it reads."""
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in done or name not in state.views:
            return
        for upstream in state.views[name].reads:
            visit(upstream)
        done[name] = None

    for name in sorted(state.views):
        visit(name)
    return list(done)


def with_upstream_views(state: CatalogState, name: str) -> list[str]:
    """A view and all views below it, each after the views it reads."""
    wanted: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        if current in state.views and current not in wanted:
            wanted.add(current)
            pending += state.views[current].reads
    return [view for view in topological(state) if view in wanted]


def outside_upstream(state: CatalogState, view: str, selected: Sequence[str]) -> list[str]:
    """The views below a view that are not among some."""
    return [n for n in state.views[view].reads if n in state.views and n not in selected]


def sources_of_new(state: CatalogState, selected: Sequence[str]) -> list[str]:
    """Upstream views that run in the epoch which builds a new view.

    They are views of the newest rows of changes. A new view over one of them and
    over others brings all of these along: they are at one epoch.
    """
    found: list[str] = []
    for name in selected:
        views = [read for read in state.views[name].reads if read in state.views]
        is_new = state.views[name].last_epoch is None
        if is_new and any(is_changelog_view(state.views[read].properties) for read in views):
            found += with_upstream_views(state, name)
    return found
