"""``relstate vacuum``: files that no retained epoch needs, deleted."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from relstate_dagster.cli.app import (
    ProjectOption,
    ServerOption,
    ViewsArgument,
    WarehouseOption,
    app,
    console,
    location,
    output,
)
from relstate_dagster.cli.start import opened
from relstate_dagster.state_lib.constants import RETAINED_HOURS


@app.command()
def vacuum(
    views: ViewsArgument = None,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="Epochs of each view that stay readable; by default the last 32.")
    ] = None,
    hours: Annotated[
        int, typer.Option("--hours", min=0, help="Also keep files that were replaced less than this many hours ago.")
    ] = RETAINED_HOURS,
    server: ServerOption = "auto",
) -> None:
    """Delete files of views, state and catalog that no retained epoch needs.

    It waits for no run: it is refused beside one.
    """
    where = location(project, warehouse)
    runner = opened(where, server, declare=where.is_named)
    table = Table("", "deleted", "", "left", "", "seconds", header_style="bold")
    with console.status("deleting old files"):
        for done in runner.vacuum(list(views or []) or None, epochs=epochs, hours=hours):
            table.add_row(
                done.name,
                f"{done.files_deleted} files",
                decimal(done.bytes_deleted),
                f"{done.files_left} files",
                decimal(done.bytes_left),
                f"{done.seconds:.1f}",
            )
    output.print(table)
