"""``relstate sql``: a script of statements over a warehouse."""

from __future__ import annotations

import base64
import json
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from relstate_dagster.cli.app import WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import start_spark
from relstate_dagster.cli.tables import changes_in, remarks
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError

if TYPE_CHECKING:
    from relstate_dagster.jobs.epoch.reports import ViewReport
    from relstate_dagster.jobs.script import Result


class Format(str, Enum):
    """How results are printed."""

    json = "json"
    table = "table"


@app.command()
def sql(
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Script to run.", exists=True, dir_okay=False)] = None,
    text: Annotated[str | None, typer.Option("-e", "--execute", help="Statements to run.")] = None,
    warehouse: WarehouseOption = None,
    output_format: Annotated[Format, typer.Option("--format", help="One JSON object a line, or tables.")] = Format.table,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Go on after a statement that failed.")] = False,
) -> None:
    """Run a script: CREATE TABLE, INSERT, UPDATE, CREATE MATERIALIZED VIEW, REFRESH, VERIFY, SELECT and the rest."""
    if (file is None) == (text is None):
        raise DeclarationError("give a script with -f FILE or statements with -e TEXT, one of the two")
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.script import ScriptSession  # noqa: PLC0415

    script = text if text is not None else Path(str(file)).read_text(encoding="utf-8")
    where = location(None, warehouse)
    spark = start_spark(where)
    session = ScriptSession(spark, Warehouse(where.warehouse, where.functions), on_report=_tell)
    failed = False
    for result in session.run(script, str(file) if file else None):
        if isinstance(result, tuple):
            failed = True
            _print_error(*result, output_format)
            if not keep_going:
                break
        elif result.is_query:
            _print_result(result, output_format)
    if failed and not keep_going:
        raise typer.Exit(1)


def _tell(report: ViewReport) -> None:
    if report.problem is None:
        out = "unchanged" if report.skipped else f"+{report.rows_inserted} −{report.rows_deleted}"
        console.print(f"{report.view}: epoch {report.epoch}, {changes_in(report) or '…'} → {out}", highlight=False)
    for line in remarks([report]):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_result(result: Result, output_format: Format) -> None:
    columns = list(result.columns or ())
    if output_format is Format.json:
        rows = [[_plain(value) for value in row] for row in result.rows]
        _line({"statement": result.statement, "columns": columns, "rows": rows})
        return
    if columns == ["plan"]:
        output.print(str(result.rows[0][0]), highlight=False, markup=False, soft_wrap=True)
        return
    table = Table(*columns, header_style="bold")
    for row in result.rows:
        table.add_row(*("NULL" if value is None else escape(str(value)) for value in row))
    output.print(table)


def _print_error(statement: int, error: Exception, output_format: Format) -> None:
    # Behind it PySpark has the stack of the JVM.
    message = str(error).split("JVM stacktrace:", 1)[0].strip()
    if output_format is Format.table and not isinstance(error, RelstateError):
        from relstate_dagster.jobs.epoch.explained import reason_of  # noqa: PLC0415 - imports PySpark

        message = reason_of(error)
    if output_format is Format.json:
        _line({"statement": statement, "error": {"class": type(error).__name__, "message": message}})
    else:
        console.print(f"statement {statement}: {type(error).__name__}: {message}", style="red", highlight=False, markup=False)


def _line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:  # noqa: PLR0911 - one line a type
    """A collected value for JSON: decimals, dates and times as strings, structs and maps as objects."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124
    if isinstance(value, (Decimal, timedelta)):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if hasattr(value, "asDict"):
        return {k: _plain(v) for k, v in value.asDict().items()}
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else str(value)
