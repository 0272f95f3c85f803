"""``relstate compact``: the state of views rewritten without what is no longer needed."""

from __future__ import annotations

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


@app.command()
def compact(
    views: ViewsArgument = None,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    server: ServerOption = "auto",
) -> None:
    """Merge the runs of state tables.

    They are sorted by key, without tombstones. Safe beside a running epoch.
    """
    where = location(project, warehouse)
    runner = opened(where, server, declare=where.is_named)
    table = Table("view", "tables", "files", "bytes", "seconds", header_style="bold")
    with console.status("compacting"):
        for done in runner.compact(list(views or []) or None):
            table.add_row(
                done.view,
                str(len(done.rewritten)),
                f"{done.files_before} → {done.files_after}",
                f"{decimal(done.bytes_before)} → {decimal(done.bytes_after)}",
                f"{done.seconds:.1f}",
            )
    output.print(table)
