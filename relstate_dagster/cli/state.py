"""``relstate state VIEW [TABLE_ID]``: the state tables of a view, and their rows decoded."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from relstate_dagster.cli.app import WarehouseOption, app, location, output
from relstate_dagster.cli.start import start_spark
from relstate_dagster.cli.tables import Shown, fitted


@app.command()
def state(
    view: str,
    table_id: Annotated[int | None, typer.Argument(help="Show this table's rows.")] = None,
    warehouse: WarehouseOption = None,
    limit: Annotated[int, typer.Option(help="Rows to show.")] = 20,
) -> None:
    """List the state tables of a view; with a table id, show its merged rows as of the last epoch."""
    from relstate_dagster.jobs.api import Warehouse, state_rows  # noqa: PLC0415 - imports PySpark

    where = location(None, warehouse)
    home = Warehouse(where.warehouse)
    entry = home.read().view(view)
    if table_id is None:
        columns = [
            Shown("table_id", is_number=True),
            Shown("table"),
            Shown("holds", 1),
            Shown("storage primary key", 2),
            Shown("merge", 4),
            Shown("vnodes", 3, is_number=True),
        ]
        rows = []
        for desc in entry.tables:
            key = ", ".join(p.column + (" desc" if p.descending else "") for p in desc.schema.storage_key)
            named = [str(desc.table_id), desc.schema.label, desc.schema.kind.value, key, desc.schema.merge.value]
            rows.append([*named, str(desc.vnode_count)])
        output.print(fitted(columns, rows, output.width))
        return
    frame = state_rows(start_spark(where), home, view, table_id)
    shown = Table(*frame.columns, header_style="bold")
    for found in frame.limit(limit).collect():
        shown.add_row(*("NULL" if value is None else escape(str(value)) for value in found))
    output.print(shown)
