"""``relstate diff VIEW``: what two epochs of a view differ by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relstate_dagster.cli.app import ServerOption, WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import answers_of
from relstate_dagster.cli.values import Format, rows_shown

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import RowChange, ViewDiff

_SIGNS = {"added": "+", "removed": "−", "changed": "~"}


@app.command()
def diff(
    view: str,
    since: Annotated[int | None, typer.Option("--from", help="An epoch; by default the one before the last.")] = None,
    until: Annotated[int | None, typer.Option("--to", help="A later or earlier epoch; by default the last.")] = None,
    warehouse: WarehouseOption = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows to show. All are counted.")] = 20,
    form: Annotated[Format, typer.Option("--format", help="A table, or a JSON object a line.")] = Format.TABLE,
    server: ServerOption = "auto",
) -> None:
    """Show rows added to a view, removed and changed between two epochs."""
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark

    where = location(None, warehouse)
    home = Warehouse(where.warehouse, where.functions)
    view = home.read().view(view).name  # an unknown name fails before Spark starts
    as_json = form is Format.JSON
    found = answers_of(where, home, server).diff(view, since, until, limit=limit, as_json=as_json)
    for note in found.notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if as_json:
        for row in found.rows:
            typer.echo(json.dumps(_as_json(found, row), ensure_ascii=False))
        totals = {"added": found.added, "removed": found.removed, "changed": found.changed}
        epochs = {"view": view, "from": found.since.epoch, "to": found.until.epoch}
        typer.echo(json.dumps({**epochs, **totals, "shown": len(found.rows)}))
        return
    if found.rows:
        has_copies = any(row.copies > 1 for row in found.rows)
        columns = ["", *(["copies"] if has_copies else []), *found.columns]
        output.print(rows_shown(columns, [_cells(found, row, has_copies) for row in found.rows], output.width))
    output.print(_counts(found), highlight=False, soft_wrap=True)


def _cells(found: ViewDiff, row: RowChange, has_copies: bool) -> list[str]:
    cells = [_SIGNS[row.change], *([str(row.copies)] if has_copies else [])]
    for name in found.columns:
        if row.old is None or row.new is None:
            cells.append((row.new or row.old or {})[name])
        elif name in row.differing:
            cells.append(f"{row.old[name]} → {row.new[name]}")
        else:
            cells.append(row.new[name])
    return cells


def _counts(found: ViewDiff) -> str:
    shown = f" ({len(found.rows):,} shown)" if len(found.rows) < found.differing_rows else ""
    counts = f"{found.added:,} added, {found.removed:,} removed, {found.changed:,} changed{shown}"
    return f"{found.view}, epoch {found.since.epoch} → {found.until.epoch}: {counts}"


def _as_json(found: ViewDiff, row: RowChange) -> dict[str, Any]:
    """A change as JSON: of a changed row its key and differing columns.

    Of another one the row.
    """
    if row.old is None or row.new is None:
        return {
            "change": row.change,
            **({} if found.key is not None else {"copies": row.copies}),
            "row": row.new or row.old or {},
        }
    old, new = ({name: side[name] for name in row.differing} for side in (row.old, row.new))
    return {"change": row.change, "key": {k: row.new[k] for k in found.key or ()}, "old": old, "new": new}
