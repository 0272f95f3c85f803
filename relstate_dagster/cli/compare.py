"""``relstate verify``: views against their queries run in full."""

from __future__ import annotations

from typing import Annotated

import typer

from relstate_dagster.cli.app import ServerOption, ViewsArgument, WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import opened
from relstate_dagster.cli.tables import rows_table, verify_table


@app.command()
def verify(
    views: ViewsArgument = None,
    warehouse: WarehouseOption = None,
    sample: Annotated[
        int | None,
        typer.Option("--sample", min=1, metavar="KEYS", help="Compare this many keys of each view, picked at random."),
    ] = None,
    server: ServerOption = "auto",
) -> None:
    """Compare views with a full recompute, both ways; exit with 1 on differences.

    Those that state.ttl explains do not count.
    """
    runner = opened(location(None, warehouse), server, declare=False)
    with console.status("running every query in full"):
        reports = runner.verify(list(views or []) or None, sample=sample)
    output.print(verify_table(reports, output.width))
    for report in reports:
        if report.problem is not None:
            output.print(f"{report.view}: {report.problem}", highlight=False, markup=False, soft_wrap=True)
        for shown, what in ((report.missing, "missing from"), (report.unexpected, "unexpected in")):
            if shown.rows:
                output.print(f"{what} {report.view}:", highlight=False, markup=False)
                output.print(rows_table(shown))
    if any(r.is_error for r in reports):
        raise typer.Exit(1)
