"""Registers a project's declarations in a warehouse.

Sources are registered, views planned, edited views planned again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import PlainViewEntry, SourceEntry, is_same_source, with_source_options
from relstate_dagster.jobs.catalog.relations import topological
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.strict import refusal
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import Project, SourceDeclaration, check_name
from relstate_dagster.jobs.declare.file_folders import file_folder
from relstate_dagster.jobs.declare.iceberg_tables import iceberg_place
from relstate_dagster.jobs.declare.last_reads import keep_reads
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.declare.query_function import Query
from relstate_dagster.jobs.declare.watermarks import WATERMARK
from relstate_dagster.jobs.registration.own_folders import check_new_table
from relstate_dagster.jobs.registration.registry import Registry, has_query_of, is_same_plain_view, with_options
from relstate_dagster.jobs.registration.spark_catalog import path_in_catalog
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.jobs.sources.folder_columns import with_columns
from relstate_dagster.jobs.view_epoch.error_messages import reason_of
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.folders import folders_in, is_table
from relstate_dagster.state_lib.lake.log import table_facts
from relstate_dagster.state_lib.lake.table import OpenedTable
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.sql_text import property_list, quoted


def sync_project(
    spark: SparkSession,
    warehouse: Warehouse,
    project: Project,
    patience: Patience | None = None,
    *,
    full_refresh: Collection[str] = (),
) -> CatalogState:
    """Bring the catalog in line with a project.

    A view whose query or refresh policy was edited is planned again and rebuilt by the next run, with the views over
    it. One that cannot be planned any more is left behind by the next run, alone: readers see it as it was. Views that the
    project no longer declares stay until they are dropped.

    Parameters
    ----------
    patience : how to wait for runs that have views which are edited.
    full_refresh : views that the user names: edits may rebuild these though their policy is strict.

    Raises
    ------
    DeclarationError : a table that a view reads is not to be found, or the user's functions are not.
    PlanError : Spark refuses the query of a view that the warehouse does not have, or its refresh policy cannot be kept.
        An edit would rebuild a strict view: then nothing was written.
    """
    project = replace(project, sources=tuple(located(spark, warehouse, source) for source in project.sources))
    before = warehouse.read()
    full_refresh = [as_declared(name, (*(view.name for view in project.views), *before.views)) for name in full_refresh]
    check_edits(warehouse, before, project, full_refresh)
    if warehouse.functions is not None:
        warehouse.functions.load()
    registry = Registry(spark, warehouse, patience, leaves_behind=True, full_refresh=full_refresh)
    registry.swept()
    for source in project.sources:
        declare_source(spark, warehouse, registry, source)
    state = warehouse.read()
    for name in project.undeclared:
        if as_declared(name, state.sources) not in state.sources:
            registry.add_source(SourceEntry(name, _find_table(spark, warehouse, name)))
    plain_views = [PlainViewEntry(plain.name, plain.named_query) for plain in project.plain_views]
    state = registry.declare(project.views, plain_views)
    _keep_reads(warehouse, state, project)
    return state


def _keep_reads(warehouse: Warehouse, state: CatalogState, project: Project) -> None:
    """Keep the tables that functions read, for loads without a JVM."""
    known: dict[str, Query] = {name: view.query for name, view in state.working.views.items()}
    known |= {name: plain.query for name, plain in state.plain_views.items()}
    declared: dict[str, Query] = {view.name: view.query for view in project.views}
    declared |= {plain.name: plain.query for plain in project.plain_views}
    found = {}
    for name, query in declared.items():
        planned = known.get(name, "")
        if isinstance(query, str) or isinstance(planned, str) or planned.reads is None:
            continue
        if query.reads is None or set(planned.reads) != set(query.reads):
            found[name] = planned.reads
    if found:
        keep_reads(warehouse.root, found)


def edits(warehouse: Warehouse, state: CatalogState, project: Project) -> Iterator[tuple[str, str]]:
    """Names that a project declares otherwise than the catalog has them.

    Each with the reason for rebuilding the view of the name, or the views that read it; empty if none is rebuilt for it.
    """
    for source in project.sources:
        known = state.sources.get(source.name)
        entry = source_entry(warehouse, source, known)
        if known is None or not is_same_source(known, entry):
            kept = known and with_source_options(known, entry)
            is_other = kept is not None and not is_same_source(kept, entry)
            yield source.name, f"source {source.name} is declared otherwise" if is_other else ""
    for name in project.undeclared:
        if as_declared(name, state.sources) not in state.sources:
            yield name, ""
    for plain in project.plain_views:
        if not is_same_plain_view(state.plain_views.get(plain.name), PlainViewEntry(plain.name, plain.named_query)):
            yield plain.name, f"plain view {plain.name} was edited" if plain.name in state.plain_views else ""
    views = state.working.views
    for view in project.views:
        if view.name not in views or not has_query_of(views[view.name], view):
            yield view.name, "it was edited" if view.name in views else ""


def refused_rebuilds(
    warehouse: Warehouse, state: CatalogState, project: Project, full_refresh: Collection[str] = ()
) -> dict[str, str]:
    """Strict views that edits of a project would rebuild, each with the reason.

    Edited functions are left out. The registry calls them, and refuses those whose plan is another one then.

    Parameters
    ----------
    full_refresh : views that the user names: these may be rebuilt.
    """
    working = state.working.views
    if not (any(view.is_strict for view in project.views) or any(view.is_strict for view in working.values())):
        return {}
    functions = {view.name for view in project.views if not isinstance(view.query, str)}
    rebuilt = {name: why for name, why in edits(warehouse, state, project) if name not in functions}
    found: dict[str, str] = {}

    def add(name: str, reads: Iterable[str], *, is_strict: bool) -> None:
        known = state.views.get(name)
        if known is None:
            return
        why = next((rebuilt[n] for n in (name, *reads) if rebuilt.get(n)), "")
        if not why and name in state.rebuilds and not known.is_strict:
            why = "a rebuild of it began before it was declared strict, and is not complete"
        if not why:
            return
        rebuilt[name] = f"it reads {name}, which is rebuilt"
        if is_strict and known.last_epoch is not None and name not in full_refresh:
            found[name] = why

    declared = {view.name: view for view in project.views}
    for name, view in declared.items():
        read = working[name].reads if name in working else ()
        add(name, (*project.inlined(name), *project.upstream(name), *read), is_strict=view.is_strict)
    for name in topological(state.working):
        if name not in declared:
            add(name, (*working[name].inlined, *working[name].reads), is_strict=working[name].is_strict)
    return found


def check_edits(warehouse: Warehouse, state: CatalogState, project: Project, full_refresh: Collection[str] = ()) -> None:
    """Check that no edit of a project would compute a strict view in full.

    Raises
    ------
    PlanError : one would.
    """
    for name, why in refused_rebuilds(warehouse, state, project, full_refresh).items():
        raise refusal(name, why)


def is_registered(warehouse: Warehouse, state: CatalogState, project: Project) -> bool:
    """Whether nothing of a project has to be registered or rebuilt, and its tables exist."""
    return (
        all(warehouse.source(source_entry(warehouse, s, state.sources.get(s.name))).exists() for s in project.sources)
        and not any(True for _ in edits(warehouse, state, project))
        and not any(view.name in state.rebuilds for view in project.views)
        and all(with_options(state.views[view.name], view) == state.views[view.name] for view in project.views)
    )


def declare_source(spark: SparkSession, warehouse: Warehouse, registry: Registry, source: SourceDeclaration) -> CatalogState:
    """Create a managed source's Delta table where it does not exist, and register the source."""
    source = located(spark, warehouse, source)
    entry = source_entry(warehouse, source)
    state = warehouse.read()
    registry.check_free(state, entry.name, besides="source")
    known = state.sources.get(entry.name)
    if entry.folder is not None and known is not None and known.folder is None:
        raise DeclarationError(
            f"source {entry.name} is a Delta table at {known.path}; drop it first, or take another name for the folder of files"
        )
    path = entry.path
    if entry.is_iceberg:
        opened = warehouse.source(entry)
        facts = opened.facts()
        if not is_same_source(known, entry):
            opened.totals()  # files that cannot be read are refused at once
        _check_watermark(entry, {field.name: field.dataType.simpleString() for field in struct_of(facts.schema_json).fields})
        return registry.add_source(entry)
    if not is_table(path):
        if entry.folder is not None:
            source = with_columns(spark, source, entry.folder)
        if not source.columns:
            raise DeclarationError(
                f"source {source.name}: there is no Delta table at {path}, and its declaration lists no columns to create one"
            )
        if not entry.managed:
            check_new_table(warehouse.root, path)
        _check_watermark(entry, {column.name: parse_type(column.type_text).simpleString() for column in source.columns})
        create_source_table(spark, path, source)
    else:
        columns = struct_of(table_facts(OpenedTable(path)).schema_json).fields
        _check_watermark(entry, {column.name: column.dataType.simpleString() for column in columns})
    return registry.add_source(entry)


def _check_watermark(entry: SourceEntry, types: Mapping[str, str]) -> None:
    """Check that a source has the column of its watermark.

    It is one of times, dates or whole numbers.
    """
    watermark, where = entry.watermarked, f"source {entry.name}"
    if watermark is None:
        return
    found = [data_type for column, data_type in types.items() if column.lower() == watermark.column.lower()]
    if not found:
        raise DeclarationError(f"{where}: '{WATERMARK}' is about column {watermark.column}, which {entry.path} does not have.")
    watermark.check_type(found[0], where)


def source_entry(warehouse: Warehouse, source: SourceDeclaration, known: SourceEntry | None = None) -> SourceEntry:
    """A declared source as the catalog has it.

    Parameters
    ----------
    known : its entry so far, if it has one. A table of Spark's catalog that was not looked up has the place of that. Without
        one it has a place in the warehouse, where it is not.
    """
    check_name(source.name, "source")
    source = _as_here(warehouse, source)
    folder = file_folder(source)
    is_found = source.location is not None
    iceberg = iceberg_place(source)
    managed = iceberg is None and ((not is_found and source.table is None) or folder is not None)
    if iceberg is not None:
        path = iceberg
    elif source.table is not None and not is_found and known is not None and known.table == source.table:
        path = known.path
    else:
        path = (
            Address.parse(str(source.location)).spark
            if is_found and not managed
            else warehouse.source_path(source.name, folder)
        )
    return SourceEntry(
        source.name,
        path,
        source.primary_key,
        source.append_only or (folder is not None and not source.primary_key),
        managed,
        source.indexes,
        source.is_changelog,
        folder,
        source.watermark,
        source.table,
        source.is_iceberg,
    )


def create_source_table(spark: SparkSession, path: str, source: SourceDeclaration) -> None:
    """Create a managed source's Delta table with change data feed.

    The catalog records the key, not Delta.
    """
    missing = [c for c in source.primary_key if c.lower() not in {column.name.lower() for column in source.columns}]
    if missing:
        raise DeclarationError(f"source {source.name}: primary key columns {', '.join(missing)} are not among its columns")
    # Of a changelog nobody updates a row: that is what appending another one means. Nor of files, but for one whose key is
    # there already, which somebody must be able to delete.
    only_appended = source.is_changelog or (source.file_format is not None and not source.primary_key)
    kept = {"delta.appendOnly": "true"} if only_appended else {"delta.enableChangeDataFeed": "true"}
    properties = {**kept, **source.properties}
    names = [column.name for column in source.columns]
    partitioned = f" PARTITIONED BY ({_listed(source.partitioned_by, names)})" if source.partitioned_by else ""
    clustered = f" CLUSTER BY ({_listed(source.cluster_by, names)})" if source.cluster_by else ""
    try:
        spark.sql(
            f"CREATE TABLE delta.`{path}` ({source.columns_ddl}) USING delta{partitioned}{clustered} "
            f"TBLPROPERTIES ({property_list(properties)})"
        )
    except PySparkException as error:
        raise DeclarationError(f"source {source.name}: Spark refuses its definition: {reason_of(error)}") from error


def _listed(columns: Sequence[str], declared: Sequence[str]) -> str:
    """Columns in their declared case, which Delta requires."""
    return ", ".join(quoted(as_declared(column, declared)) for column in columns)


def _folders_called(warehouse: Warehouse, name: str) -> list[str]:
    """The folders of sources of a name, in any case."""
    folders = (path.rpartition("/")[2] for path in folders_in(f"{warehouse.root}/sources"))
    return [folder for folder in folders if folder.lower() == name.lower()]


def _as_here(warehouse: Warehouse, source: SourceDeclaration) -> SourceDeclaration:
    """A source as a table of the warehouse, if it is there."""
    is_here = source.table is not None and source.may_be_here and is_table(warehouse.source_path(source.name))
    return replace(source, table=None, location=None) if is_here else source


def located(spark: SparkSession, warehouse: Warehouse, source: SourceDeclaration) -> SourceDeclaration:
    """A source with the place of its table in Spark's catalog.

    Raises
    ------
    DeclarationError : the catalog has no such table, or it is not a Delta table.
    """
    source = _as_here(warehouse, source)
    if source.table is None or source.location is not None:
        return source
    path = path_in_catalog(spark, source.table, source.table)
    if path is None:
        raise DeclarationError(
            f"source {source.name}: Spark's catalog has no table {source.table}; create it, or name its catalog in the "
            "settings of Spark (spark.sql.catalog.…)"
        )
    return replace(source, location=path)


def _find_table(spark: SparkSession, warehouse: Warehouse, name: str) -> str:
    """Path of an undeclared table: in the warehouse's sources, or Spark's catalog."""
    for found in (name, *_folders_called(warehouse, name)):
        if is_table(warehouse.source_path(found)):
            return warehouse.source_path(found)
    found_path = path_in_catalog(spark, quoted(name), name)
    if found_path is not None:
        return found_path
    raise DeclarationError(
        f"table {name} is neither declared, nor in {warehouse.root}/sources, nor in Spark's catalog; declare it with "
        f"CREATE TABLE {name} USING delta LOCATION '…'"
    )
