"""Metadata of views in Dagster: before a view runs, and of each epoch."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dagster import AssetKey, MetadataValue, TableColumn, TableColumnDep, TableColumnLineage, TableRecord, TableSchema

from relstate_dagster.jobs.declare import Project, SourceDeclaration, ViewDeclaration
from relstate_dagster.jobs.declare.model import declared_policy
from relstate_dagster.jobs.declare.query_function import Query, text_of_query
from relstate_dagster.state_lib.constants import VIEW_KEY

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import ShownRows, ViewReport

Metadata = dict[str, Any]
#: Pixels that the UI's window has for a picture, on a small screen; and what larger pictures are made smaller to at most.
_PICTURE_WIDTH: Final = 1000
_LEAST_FACTOR: Final = 0.6
#: Letters of an encoded picture, in each event of a view: a plan of some 40 nodes.
_LARGEST_PICTURE: Final = 60_000
#: Letters of a value in a table of rows; a longer one is cut.
_MOST_LETTERS: Final = 100


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
    return {"query": query_block(view.query), "refresh policy": declared_policy(view.properties)}


#: What an epoch of a view says of itself, in the order in which it matters, and what that is. The reference is made of this.
EPOCH_METADATA: Final[Mapping[str, str]] = {
    "epoch": "Number of the epoch that the view has reached.",
    "strategy": "`backfill` (its first epoch), `incremental`, or `full` and why.",
    "changed": "Whether the epoch has written anything. If not, something else than this run had.",
    "rows in +": "Rows inserted into what the view reads, since its last epoch. None of a backfill.",
    "rows in −": "Rows deleted from it. An update is both.",
    "rows out +": "Rows that entered the view.",
    "rows out −": "Rows that left it.",
    "share of a full recompute": "Its seconds by those of the last epoch that computed all rows. Not of views over views.",
    "changed rows": "Some of the rows that entered (+) and left (−) the view, where the driver has applied them.",
    "dagster/row_count": "Rows of the view, from the log of its table. Missing where only Spark could count them.",
    "late rows": "Rows of a table of changes that came after a newer row of their key, and rows of closed windows.",
    "malformed records": "Records of new files that are no rows.",
    "inputs": "A line for each source: its Delta version, and rows inserted and deleted. Of views that it reads, the rows.",
    "seconds": "Of all steps together.",
    "seconds: plan": "To find out what has changed, and who computes what.",
    "seconds: compute and commit": "To compute the change and write it, with the view's state.",
    "seconds: publish": "To apply the change to the view's table.",
    "seconds: compact": "To keep the state small.",
    "spark jobs": "Spark jobs that the epoch took.",
    "MB in": "Of the files that the change of what the view reads is in; in a backfill, of all of them.",
    "state rows written": "Rows that were added to the view's state, its own changes among them.",
    "state rows": "Rows of the view's state, those included that cancel until its next compaction.",
    "state MB": "Size of its files.",
    "view version": "Delta version of the view's table.",
    "dagster/uri": "Where the view's table is.",
    "dagster/column_schema": "The columns of the view.",
    "dagster/column_lineage": "The input columns that each column is computed from.",
    "advice": "What would make such epochs cheaper.",
    "remarks": "What else there is to know.",
    "stages": "The steps that the epoch was planned as, with sizes and reasons ([sizing](sizing.md)).",
    "picture": "The plan as a picture, with the rows along its edges (in strict runs, along each) and into its state.",
    "plan": "The plan of the view, as `relstate explain` prints it.",
}


def epoch_metadata(report: ViewReport, of_table: Metadata | None = None) -> Metadata:
    """Numbers of one view in one epoch, each under its own name.

    The UI plots each of them.

    Parameters
    ----------
    of_table
        What :func:`table_metadata` says.

    Returns
    -------
    Values by the names of :data:`EPOCH_METADATA`, in that order.
    """
    strategy = "backfill" if report.is_backfill and report.strategy == "incremental" else report.strategy
    metadata: Metadata = {
        "epoch": report.epoch,
        "strategy": strategy if not report.reason else f"{strategy}: {report.reason}",
        "changed": not report.skipped,
        "rows in +": sum(inserted for inserted, _ in report.rows_in.values()),
        "rows in −": sum(deleted for _, deleted in report.rows_in.values()),
        "rows out +": report.rows_inserted,
        "rows out −": report.rows_deleted,
        "MB in": _megabytes(report.bytes_in),
        "state rows written": report.state_rows_written,
        "inputs": _inputs(report),
        "seconds": _rounded(sum(report.seconds.values())),
        **{f"seconds: {stage.replace('_', ' ')}": _rounded(seconds) for stage, seconds in report.seconds.items()},
        "stages": MetadataValue.md("\n".join(f"* {line}" for line in report.stages) or "nothing to do"),
        **_picture(report.picture),
        "plan": MetadataValue.md(f"```\n{report.plan_text.rstrip()}\n```"),
        **(of_table or {}),
    }
    optional = {
        "share of a full recompute": None if report.of_full is None else _rounded(report.of_full),
        "spark jobs": report.spark_jobs,
        "state rows": report.state_rows,
        "state MB": None if report.state_bytes is None else _megabytes(report.state_bytes),
    }
    metadata |= {name: value for name, value in optional.items() if value is not None}
    if report.changed.rows:
        metadata["changed rows"] = markdown_table(report.changed)
    if report.late_rows:
        metadata["late rows"] = report.late_rows
    if report.malformed_records:
        metadata["malformed records"] = report.malformed_records
    if report.view_version is not None:
        metadata["view version"] = report.view_version
    if report.advice:
        metadata["advice"] = "\n".join(report.advice)
    if report.remarks:
        metadata["remarks"] = "\n".join(report.remarks)
    return {name: metadata[name] for name in EPOCH_METADATA if name in metadata}


def _picture(svg: str) -> Metadata:
    """A picture in Markdown for the UI, inline.

    None if it would fill the event log.
    """
    encoded = base64.b64encode(_fitted(svg).encode()).decode()
    shown = bool(svg) and len(encoded) <= _LARGEST_PICTURE
    return {"picture": MetadataValue.md(f"![plan of the view](data:image/svg+xml;base64,{encoded})")} if shown else {}


def _fitted(svg: str) -> str:
    """A picture scaled to the UI's window, as long as it stays readable."""
    size = re.match(r'(<svg [^>]*?)width="(\d+)" height="(\d+)"', svg)
    if size is None:
        return svg
    width, height = int(size[2]), int(size[3])
    factor = max(_LEAST_FACTOR, min(1.0, _PICTURE_WIDTH / width))
    return f'{size[1]}width="{width * factor:.0f}" height="{height * factor:.0f}"{svg[size.end() :]}'


def _rounded(seconds: float) -> float:
    """Seconds rounded for people.

    The UI shows and plots all digits of a number.
    """
    return float(round(seconds, 3))


def _megabytes(size: int) -> float:
    return float(round(size / 1e6, 3))


def _inputs(report: ViewReport) -> MetadataValue[Any]:
    """Inputs of the view, one line each: version, rows inserted and deleted."""
    records = []
    for name in sorted({*report.source_versions, *report.rows_in}):
        inserted, deleted = report.rows_in.get(name, (0, 0))
        version = str(report.source_versions.get(name, ""))
        records.append(TableRecord({"input": name, "version": version, "rows +": inserted, "rows −": deleted}))
    kinds = {"input": "string", "version": "string", "rows +": "int", "rows −": "int"}
    schema = TableSchema(columns=[TableColumn(name, kind) for name, kind in kinds.items()])
    return MetadataValue.table(records=records, schema=schema)


def table_metadata(path: str, version: int | None) -> Metadata:
    """Path, visible columns and row count of a view's table.

    Less where there is no table yet.

    Read by delta-rs, without Spark.
    """
    # delta-rs loads only when asked
    from relstate_dagster.state_lib.lake.statistics import data_files, row_count  # noqa: PLC0415
    from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable  # noqa: PLC0415

    try:
        table = DeltaTable(path, version=version)
    except (DeltaError, OSError):
        return {}
    found: Metadata = {
        "dagster/uri": path,
        "dagster/column_schema": TableSchema(
            columns=[
                TableColumn(field.name, _type_name(field.type))
                for field in table.schema().fields
                if field.name != VIEW_KEY and not field.name.startswith("_")
            ]
        ),
    }
    # A file with a deletion vector has fewer rows than it says.
    rows = None if "deletionVectors" in (table.protocol().reader_features or ()) else row_count(data_files(table, {}))
    return found if rows is None else {**found, "dagster/row_count": rows}


def column_lineage(project: Project, name: str, keys: Mapping[str, AssetKey]) -> TableColumnLineage | None:
    """Columns of direct inputs behind each column of a view; None if unknown.

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


def query_block(query: Query) -> MetadataValue[Any]:
    """Return SQL, or the source of a function, as the UI shows it in Markdown."""
    return MetadataValue.md(f"```{'sql' if isinstance(query, str) else 'python'}\n{text_of_query(query)}\n```")


def _type_name(delta_type: Any) -> str:
    name = getattr(delta_type, "type", None)
    return name if isinstance(name, str) else str(delta_type)


def markdown_table(shown: ShownRows) -> MetadataValue[Any]:
    """Return rows as a table."""
    lines = [shown.columns, ["---"] * len(shown.columns), *shown.rows]
    return MetadataValue.md("\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines))


def _cell(text: str | None) -> str:
    if text is None:
        return "NULL"
    cut = text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
    for sign, written in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("\r", ""), ("\n", " ")):
        cut = cut.replace(sign, written)
    return cut
