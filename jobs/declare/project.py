"""A project: ``.sql`` files or models of dbt, checked and put in dependency order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, TypeAlias

from relstate_dagster.jobs.declare.catalog_tables import TABLE, CatalogTables
from relstate_dagster.jobs.declare.changelogs import expanded
from relstate_dagster.jobs.declare.last_reads import with_last_reads
from relstate_dagster.jobs.declare.lineage import ColumnLineage, column_lineage, dependencies, output_columns
from relstate_dagster.jobs.declare.model import PlainView, SourceDeclaration, ViewDeclaration
from relstate_dagster.jobs.declare.parser import parse_text
from relstate_dagster.jobs.declare.pipelines import pipeline_declarations, spec_file
from relstate_dagster.jobs.declare.python_views import views_of_files
from relstate_dagster.jobs.declare.query_function import Query, is_same_query
from relstate_dagster.jobs.declare.statements import place
from relstate_dagster.state_lib.errors import DeclarationError

#: How an address begins that is no path: ``s3://bucket``, ``file:/data``.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")

Declared: TypeAlias = ViewDeclaration | SourceDeclaration | PlainView


@dataclass(frozen=True)
class Project:
    """Views in dependency order (upstream first), sources and plain views.

    Attributes
    ----------
    reads
        For each view and plain view, the names it reads, as they were declared.
    undeclared
        Tables that are read but not declared: existing Delta tables, which need no declaration.
    remarks
        Parts of a dbt project that are not used.
    """

    views: tuple[ViewDeclaration, ...] = ()
    sources: tuple[SourceDeclaration, ...] = ()
    plain_views: tuple[PlainView, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    undeclared: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def source_names(self) -> tuple[str, ...]:
        """Every source that is declared or read."""
        return tuple(source.name for source in self.sources) + self.undeclared

    def view(self, name: str) -> ViewDeclaration:
        """Return a view by its name, in any case.

        Raises
        ------
        DeclarationError
            There is no such view.
        """
        for view in self.views:
            if view.name.lower() == name.lower():
                return view
        known = ", ".join(view.name for view in self.views) or "none"
        raise DeclarationError(f"there is no materialized view {name!r}; the project's views are: {known}.")

    def upstream(self, name: str) -> tuple[str, ...]:
        """Return the sources and materialized views that a view reads, looking through plain views."""
        plain = {view.name for view in self.plain_views}
        found: dict[str, None] = {}
        for read in self.reads.get(name, ()):
            found |= dict.fromkeys(self.upstream(read) if read in plain else (read,))
        return tuple(found)

    def inlined(self, name: str) -> dict[str, Query]:
        """Plain views that a query reads, directly or through others, with their queries."""
        plain = {view.name: view.named_query for view in self.plain_views}
        found: dict[str, Query] = {}
        for read in self.reads.get(name, ()):
            if read in plain:
                found |= {read: plain[read], **self.inlined(read)}
        return found

    @cached_property
    def columns(self) -> Mapping[str, Mapping[str, str]]:
        """Columns and types as known without a JVM.

        Types of a view's columns are unknown (``?``).
        """
        known: dict[str, Mapping[str, str]] = {
            source.name: {column.name: column.type_text for column in source.columns} for source in self.sources
        }
        for name in self._in_order():
            view = self._queries[name]
            text = _text(view.query)
            names = view.column_names or output_columns(text) or tuple(column_lineage(_text(view.named_query), known))
            known[name] = dict.fromkeys(names, "?")
        return known

    def lineage(self, name: str) -> ColumnLineage:
        """Column lineage of a view, down to sources and views.

        Plain views are resolved.
        """
        schemas = {table: columns for table, columns in self.columns.items() if columns}
        plain = {view.name for view in self.plain_views}
        lineage = column_lineage(_text(self._queries[name].named_query), schemas)
        for column, origins in lineage.items():
            found: dict[tuple[str, str], None] = {}
            for table, origin in origins:
                declared = self._declared_name(table)
                through = self.lineage(declared).get(origin, ()) if declared in plain else ((declared, origin),)
                found |= dict.fromkeys(through)
            lineage[column] = tuple(sorted(found))
        return lineage

    @property
    def _queries(self) -> dict[str, ViewDeclaration | PlainView]:
        views: list[ViewDeclaration | PlainView] = [*self.views, *self.plain_views]
        return {view.name: view for view in views}

    def _in_order(self) -> Iterable[str]:
        graph = {name: [read for read in reads if read in self.reads] for name, reads in self.reads.items()}
        return TopologicalSorter(graph).static_order()

    def _declared_name(self, name: str) -> str:
        by_lower = {known.lower(): known for known in (*self.reads, *self.source_names)}
        return by_lower.get(name.lower(), name)


def load_project(
    folder: str | Path,
    exists: Callable[[str], bool] | None = None,
    extra: Sequence[ViewDeclaration] = (),
    warehouse: str | None = None,
) -> Project:
    """Read the SQL and Python files of a folder, a pipeline, or a dbt manifest.

    Parameters
    ----------
    folder
        Files are read in order of their paths; the order of views does not depend on it.
    exists
        Tells whether a table that is read but not declared is there (in the warehouse, say). Without it such names
        are taken for existing tables.
    extra
        Views declared in Python, besides those of the folder's files.
    warehouse
        Its folder or address. It keeps what a function was found to read, if its text does not show that.

    Raises
    ------
    DeclarationError
        A file holds something else than declarations, a name is declared twice, a view reads itself, views read each
        other in a circle, or a table is unknown.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DeclarationError(f"there is no project folder {root}: make it, or run `relstate init {root}`.")
    if (root / "dbt_project.yml").is_file():
        from relstate_dagster.jobs.declare.dbt import dbt_declarations, read_manifest  # noqa: PLC0415 - for these alone

        found = dbt_declarations(read_manifest(root.resolve()))
        return replace(build_project([*found.declared, *extra], exists), remarks=found.remarks)
    pipeline = spec_file(root)
    if pipeline is not None:
        graph = pipeline_declarations(pipeline)
        return replace(build_project(with_last_reads([*graph.declared, *extra], warehouse), exists), remarks=graph.remarks)
    declared: list[Declared] = []
    for path in sorted(root.rglob("*.sql")):
        for declaration in parse_text(path.read_text(encoding="utf-8"), str(path)):
            if isinstance(declaration, SourceDeclaration):
                declared.append(_with_absolute_location(declaration, path.parent))
            elif isinstance(declaration, (ViewDeclaration, PlainView)):
                declared.append(declaration)
            else:
                raise DeclarationError(
                    f"{place(declaration.path, declaration.line)}: a project holds CREATE MATERIALIZED VIEW, CREATE "
                    "VIEW and CREATE TABLE only; run other statements with `relstate sql`."
                )
    of_files = [view for view in views_of_files(root.resolve()) if not any(_is_same_view(view, other) for other in extra)]
    return build_project(with_last_reads([*declared, *of_files, *extra], warehouse), exists)


def build_project(declarations: Iterable[Declared], exists: Callable[[str], bool] | None = None) -> Project:
    """Check declarations against each other and put the views in dependency order; see `load_project`."""
    by_lower: dict[str, Declared] = {}
    for declaration in _as_kept(declarations):
        earlier = by_lower.setdefault(declaration.name.lower(), declaration)
        if earlier is not declaration:
            raise DeclarationError(
                f"{place(declaration.path, declaration.line)}: {declaration.name!r} is already declared at "
                f"{place(earlier.path, earlier.line)} (case does not tell names apart): rename or remove one."
            )
    by_lower = _over_catalog_tables(by_lower)
    queries = {d.name: d for d in by_lower.values() if not isinstance(d, SourceDeclaration)}
    undeclared: dict[str, str] = {}
    reads: dict[str, tuple[str, ...]] = {}
    for name, view in queries.items():
        where = place(view.path, view.line)
        found: list[str] = []
        for read in _reads_of(view.query, f"{where}: {name}"):
            declared = by_lower.get(read.lower())
            if declared is None:
                undeclared.setdefault(read.lower(), read)
                if exists is not None and not exists(read):
                    raise DeclarationError(
                        f"{where}: view {name} reads {read!r}, which is neither declared nor a table of the warehouse. "
                        f"Declared are: {', '.join(sorted(d.name for d in by_lower.values()))}."
                    )
                found.append(undeclared[read.lower()])
            elif declared.name == name:
                raise DeclarationError(f"{where}: view {name} reads itself; a view is computed from other tables.")
            else:
                found.append(declared.name)
        reads[name] = tuple(found)
    order = _dependency_order(reads, queries)
    return Project(
        views=tuple(view for name in order if isinstance(view := queries[name], ViewDeclaration)),
        sources=tuple(d for d in by_lower.values() if isinstance(d, SourceDeclaration)),
        plain_views=tuple(view for name in order if isinstance(view := queries[name], PlainView)),
        reads=reads,
        undeclared=tuple(undeclared.values()),
    )


def _over_catalog_tables(declared: Mapping[str, Declared]) -> dict[str, Declared]:
    """Declarations by lower-case names, over sources in place of tables of Spark's catalog.

    Raises
    ------
    DeclarationError
        Two sources are the same table, or the name of the source for a table is taken.
    """
    tables = CatalogTables()
    for declaration in declared.values():
        if isinstance(declaration, SourceDeclaration) and declaration.table is not None:
            tables.add(declaration.name, declaration.table, place(declaration.path, declaration.line))
    found: dict[str, Declared] = {}
    for name, declaration in declared.items():
        found[name] = declaration
        if not isinstance(declaration, SourceDeclaration) and isinstance(declaration.query, str):
            where = f"{place(declaration.path, declaration.line)}: {declaration.name}"
            query = tables.over_sources(declaration.query, where)
            found[name] = declaration if query == declaration.query else replace(declaration, query=query)
    for source in tables.found.values():
        other = found.setdefault(source.name.lower(), source)
        if other is not source:
            raise DeclarationError(
                f"{place(other.path, other.line)}: {other.name!r} is the name of the source for {source.table}, which is read "
                f"and not declared: declare it by another name, with TBLPROPERTIES ('{TABLE}' = '{source.table}')."
            )
    return found


def _is_same_view(one: ViewDeclaration, other: ViewDeclaration) -> bool:
    """Whether two declarations are the same view."""
    return one.name == other.name and is_same_query(one.query, other.query)


def _text(query: Query) -> str:
    """The SQL of a query; empty for a function."""
    return query if isinstance(query, str) else ""


def _reads_of(query: Query, where: str) -> tuple[str, ...]:
    return dependencies(query, where) if isinstance(query, str) else query.reads or ()


def _as_kept(declarations: Iterable[Declared]) -> Iterable[Declared]:
    """Declarations, with tables of changes replaced by their parts."""
    for declaration in declarations:
        if isinstance(declaration, SourceDeclaration):
            source, view = expanded(declaration)
            yield source
            if view is not None:
                yield view
        else:
            yield declaration


def _dependency_order(reads: Mapping[str, tuple[str, ...]], queries: Mapping[str, Declared]) -> list[str]:
    """Return upstream first, and names in alphabetical order where that leaves a choice."""
    sorter = TopologicalSorter({name: [read for read in reads[name] if read in reads] for name in reads})
    try:
        sorter.prepare()
    except CycleError as problem:
        # graphlib lists each node before one that depends on it; read backwards, each view reads the next.
        circle = [str(name) for name in reversed(problem.args[1])]
        first = queries[circle[0]]
        raise DeclarationError(
            f"{place(first.path, first.line)}: views read each other in a circle: {' → '.join(circle)}. "
            "Break it by letting one of them read the others' sources."
        ) from problem
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    return order


def _with_absolute_location(source: SourceDeclaration, folder: Path) -> SourceDeclaration:
    """Resolve a relative LOCATION against the folder of the file that declares it."""
    if source.location is None or source.location.startswith("/") or _SCHEME.match(source.location):
        return source
    return replace(source, location=str((folder / source.location).resolve()))
