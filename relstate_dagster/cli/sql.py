"""``relstate sql``: a script of statements over a warehouse."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from relstate_dagster.cli.app import ServerOption, WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import server_of, server_settings, start_spark, tell_remark
from relstate_dagster.cli.tables import changes_in, remarks
from relstate_dagster.state_lib.errors import DeclarationError

if TYPE_CHECKING:
    from relstate_dagster.jobs.view_epoch.reports import ViewReport
    from relstate_dagster.server.client import ServerAt
    from relstate_dagster.settings import Location


class Format(str, Enum):
    """Format of printed results."""

    json = "json"
    table = "table"


@app.command()
def sql(
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Script to run.", exists=True, dir_okay=False)] = None,
    text: Annotated[str | None, typer.Option("-e", "--execute", help="Statements to run.")] = None,
    warehouse: WarehouseOption = None,
    output_format: Annotated[Format, typer.Option("--format", help="One JSON object a line, or tables.")] = Format.table,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Go on after a statement that failed.")] = False,
    server: ServerOption = "auto",
) -> None:
    """Run a script: CREATE TABLE, INSERT, CREATE MATERIALIZED VIEW, REFRESH, VERIFY, SELECT and more."""
    if (file is None) == (text is None):
        raise DeclarationError("give a script with -f FILE or statements with -e TEXT, one of the two")
    script = text if text is not None else Path(str(file)).read_text(encoding="utf-8")
    where, path = location(None, warehouse), str(file) if file else None
    failed, has_ended, first = False, False, 1
    found = server_of(where, server)
    if found is not None:
        failed, has_ended, first = _at_server(where, found, script, path, output_format, keep_going=keep_going)
    if not has_ended:
        failed |= _here(where, script, path, output_format, keep_going=keep_going, first=first)
    if failed and not keep_going:
        raise typer.Exit(1)


def _here(where: Location, script: str, path: str | None, output_format: Format, *, keep_going: bool, first: int) -> bool:
    """Run a script, from a statement on, in this process; whether a statement has failed."""
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.script import ScriptSession, failure_shown, rows_shown  # noqa: PLC0415

    as_json = output_format is Format.json
    session = ScriptSession(start_spark(where), Warehouse(where.warehouse, where.functions), on_report=_tell)
    failed = False
    for result in session.run(script, path, first=first):
        if isinstance(result, tuple):
            failed = True
            _print_error(result[0], failure_shown(result[1], as_json=as_json), output_format)
            if not keep_going:
                break
        elif result.is_query:
            _print_result(result.statement, list(result.columns or ()), rows_shown(result, as_json=as_json), output_format)
    return failed


def _at_server(
    where: Location, server: ServerAt, script: str, path: str | None, output_format: Format, *, keep_going: bool
) -> tuple[bool, bool, int]:
    """Run a script at a server.

    Whether a statement has failed, whether it has ended, and where it goes on if not.
    """
    from relstate_dagster.jobs.api import ViewReport  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.server.channel import ServerGone  # noqa: PLC0415 - where there is a server only
    from relstate_dagster.server.client import Refused  # noqa: PLC0415
    from relstate_dagster.server.json_values import from_plain  # noqa: PLC0415
    from relstate_dagster.server.script import ServerScript  # noqa: PLC0415

    asked = ServerScript(server, server_settings(where).agreed(), script, path)
    failed = False
    try:
        for message in asked.run(as_json=output_format is Format.json, keep_going=keep_going):
            if "tell" in message:
                tell_remark(message["tell"])
            elif "report" in message:
                _tell(from_plain(ViewReport, message["report"]))
            elif "failed" in message:
                failed = True
                _print_error(message["failed"], (message["class"], message["message"]), output_format)
            elif message.get("rows") is not None:
                _print_result(message["done"], message["columns"], message["rows"], output_format)
    except Refused as why:
        tell_remark(f"{why}; going on without it")
        return failed, False, 1
    except ServerGone:
        tell_remark("the server has ended before it was done; going on without it")
        return failed, False, asked.done + 1
    return failed, True, 0


def _tell(report: ViewReport) -> None:
    if report.problem is None:
        out = "unchanged" if report.skipped else f"+{report.rows_inserted} −{report.rows_deleted}"
        console.print(f"{report.view}: epoch {report.epoch}, {changes_in(report) or '…'} → {out}", highlight=False)
    for line in remarks([report]):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_result(statement: int, columns: list[str], rows: list[list[Any]], output_format: Format) -> None:
    if output_format is Format.json:
        _line({"statement": statement, "columns": columns, "rows": rows})
        return
    if columns == ["plan"]:
        output.print(rows[0][0], highlight=False, markup=False, soft_wrap=True)
        return
    table = Table(*columns, header_style="bold")
    for row in rows:
        table.add_row(*("NULL" if value is None else escape(value) for value in row))
    output.print(table)


def _print_error(statement: int, failure: tuple[str, str], output_format: Format) -> None:
    kind, message = failure
    if output_format is Format.json:
        _line({"statement": statement, "error": {"class": kind, "message": message}})
    else:
        console.print(f"statement {statement}: {kind}: {message}", style="red", highlight=False, markup=False)


def _line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
