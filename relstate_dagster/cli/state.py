"""``relstate state VIEW [TABLE_ID]``: the state tables of a view, and their rows decoded."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from relstate_dagster.cli.app import WarehouseOption, app, location, output
from relstate_dagster.cli.start import start_spark
from relstate_dagster.cli.tables import Shown, fitted
from relstate_dagster.cli.values import Format
from relstate_dagster.jobs.view_epoch.shown_values import text_value
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.table_schema import StateTableDesc

_KEY = "a JSON array, or name=value pairs with commas between"


@app.command()
def state(
    view: str,
    table_id: Annotated[int | None, typer.Argument(help="Show this table's rows.")] = None,
    warehouse: WarehouseOption = None,
    limit: Annotated[int, typer.Option(help="Rows to show.")] = 20,
    key: Annotated[str | None, typer.Option(help=f"The row of this storage primary key: {_KEY}.")] = None,
    prefix: Annotated[str | None, typer.Option(help="The rows whose key begins with these values, written alike.")] = None,
    columns: Annotated[str | None, typer.Option(help="Only these columns, with commas between.")] = None,
    epoch: Annotated[int | None, typer.Option(help="As of this epoch; by default the view's last.")] = None,
    form: Annotated[Format, typer.Option("--format", help="A table, or a JSON object a line.")] = Format.TABLE,
) -> None:
    """List the state tables of a view, or a table's merged rows.

    A table id selects the rows of that table, as of an epoch.
    """
    from relstate_dagster.jobs.api import Warehouse, state_rows  # noqa: PLC0415 - imports PySpark

    where = location(None, warehouse)
    home = Warehouse(where.warehouse)
    entry = home.read().view(view)
    if table_id is None:
        if any(given is not None for given in (key, prefix, columns, epoch)):
            ids = ", ".join(str(desc.table_id) for desc in entry.tables)
            raise DeclarationError(f"rows are of one state table: relstate state {view} TABLE_ID …; {view} has {ids}")
        _list(entry.tables, form)
        return
    names = None if columns is None else _names(columns)
    frame = state_rows(start_spark(where), home, view, table_id, key=key, prefix=prefix, columns=names, epoch=epoch)
    found = frame.limit(limit).collect()
    if form is Format.JSON:
        for row in found:
            typer.echo(json.dumps(row.asDict(recursive=True), default=text_value, ensure_ascii=False))
        return
    shown = Table(*map(escape, frame.columns), header_style="bold")
    for row in found:
        shown.add_row(*(escape(text_value(value)) for value in row))
    output.print(shown)


def _list(tables: tuple[StateTableDesc, ...], form: Format) -> None:
    columns = [
        Shown("table_id", is_number=True),
        Shown("table"),
        Shown("holds", 1),
        Shown("storage primary key", 2),
        Shown("merge", 4),
        Shown("vnodes", 3, is_number=True),
    ]
    rows = []
    for desc in tables:
        key = ", ".join(p.column + (" desc" if p.descending else "") for p in desc.schema.storage_key)
        named = [str(desc.table_id), desc.schema.label, desc.schema.kind.value, key, desc.schema.merge.value]
        rows.append([*named, str(desc.vnode_count)])
    if form is Format.JSON:
        for row in rows:
            typer.echo(json.dumps(dict(zip((c.name for c in columns), row, strict=True)), ensure_ascii=False))
        return
    output.print(fitted(columns, rows, output.width))


def _names(columns: str) -> list[str]:
    """Names with commas between; one with a comma stands in backticks."""
    names, name, quoted = [], "", False
    for sign in columns:
        if sign == "`":
            quoted = not quoted
        elif sign == "," and not quoted:
            names.append(name.strip())
            name = ""
        else:
            name += sign
    return [*names, name.strip()]
