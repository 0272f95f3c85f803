"""Metadata of views in Dagster: before a view runs, and of each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagster import AssetKey, MetadataValue, TableColumn, TableColumnDep, TableColumnLineage, TableRecord, TableSchema

from relstate_dagster.jobs.declare import Project, SourceDeclaration, ViewDeclaration
from relstate_dagster.state_lib.constants import VIEW_KEY

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import ViewReport

Metadata = dict[str, Any]


def source_metadata(source: SourceDeclaration) -> Metadata:
    """Return what a declaration says of a source: its columns and its key."""
    columns = [TableColumn(column.name, column.type_text.lower(), description=column.comment) for column in source.columns]
    folder = {} if source.file_format is None else {"folder": str(source.location), "file format": source.file_format}
    return {
        "dagster/column_schema": TableSchema(columns=columns),
        "primary key": ", ".join(source.primary_key) or "none",
        "append-only": source.append_only,
        **folder,
    }


def view_metadata(view: ViewDeclaration) -> Metadata:
    """Return what a declaration says of a view: its SQL and its refresh policy."""
    return {"query": sql_block(view.query), "refresh policy": view.refresh_policy}


def epoch_metadata(report: ViewReport) -> Metadata:
    """Return the numbers of one view in one epoch, each under a name of its own, so that the UI plots it."""
    metadata: Metadata = {
        "epoch": report.epoch,
        "strategy": report.strategy if not report.reason else f"{report.strategy}: {report.reason}",
        "changed": not report.skipped,
        "rows in +": sum(inserted for inserted, _ in report.rows_in.values()),
        "rows in −": sum(deleted for _, deleted in report.rows_in.values()),
        "rows out +": report.rows_inserted,
        "rows out −": report.rows_deleted,
        "state rows written": report.state_rows_written,
        "inputs": _inputs(report),
        "stages": MetadataValue.md("\n".join(f"* {line}" for line in report.stages) or "nothing to do"),
        "plan": MetadataValue.md(f"```\n{report.plan_text.rstrip()}\n```"),
    }
    if report.late_rows:
        metadata["late rows"] = report.late_rows
    if report.malformed_records:
        metadata["malformed records"] = report.malformed_records
    if report.view_version is not None:
        metadata["view version"] = report.view_version
    metadata["seconds"] = _rounded(sum(report.seconds.values()))
    for stage, seconds in report.seconds.items():
        metadata[f"seconds: {stage}"] = _rounded(seconds)
    if report.advice:
        metadata["advice"] = "\n".join(report.advice)
    if report.remarks:
        metadata["remarks"] = "\n".join(report.remarks)
    return metadata


def _rounded(seconds: float) -> float:
    """Return seconds as people read them; the UI shows and plots all digits of a number."""
    return float(round(seconds, 3))


def _inputs(report: ViewReport) -> MetadataValue[Any]:
    """Return what the view has read, one line an input: the source's version, rows inserted and deleted."""
    records = []
    for name in sorted({*report.source_versions, *report.rows_in}):
        inserted, deleted = report.rows_in.get(name, (0, 0))
        version = str(report.source_versions.get(name, ""))
        records.append(TableRecord({"input": name, "version": version, "rows +": inserted, "rows −": deleted}))
    kinds = {"input": "string", "version": "string", "rows +": "int", "rows −": "int"}
    schema = TableSchema(columns=[TableColumn(name, kind) for name, kind in kinds.items()])
    return MetadataValue.table(records=records, schema=schema)


def published_schema(path: str) -> TableSchema | None:
    """Return the visible columns of a published view, read by delta-rs; None where there is no table yet."""
    from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable  # noqa: PLC0415 - delta-rs loads only when asked

    try:
        fields = DeltaTable(path).schema().fields
    except (DeltaError, OSError):
        return None
    return TableSchema(
        columns=[
            TableColumn(field.name, _type_name(field.type))
            for field in fields
            if field.name != VIEW_KEY and not field.name.startswith("_")
        ]
    )


def column_lineage(project: Project, name: str, keys: Mapping[str, AssetKey]) -> TableColumnLineage | None:
    """Return which columns of its direct inputs each column of a view is computed from; None if it is not known.

    ``keys`` are the asset keys of views and sources by their names.
    """
    found: Mapping[str, tuple[tuple[str, str], ...]] = project.lineage(name)
    if not found:
        return None
    return TableColumnLineage(
        {
            column: [TableColumnDep(keys[table], origin) for table, origin in origins if table in keys]
            for column, origins in found.items()
        }
    )


def sql_block(query: str) -> MetadataValue[Any]:
    """Return SQL as the UI shows it in Markdown."""
    return MetadataValue.md(f"```sql\n{query}\n```")


def _type_name(delta_type: Any) -> str:
    name = getattr(delta_type, "type", None)
    return name if isinstance(name, str) else str(delta_type)
