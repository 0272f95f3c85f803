"""``relstate check``: the checks that views declare, made on what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

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
from relstate_dagster.cli.tables import check_table, rows_table

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import CheckReport


@app.command()
def check(
    views: ViewsArgument = None,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    server: ServerOption = "auto",
) -> None:
    """Run the checks of views; exit with 1 if an error fails.

    Where a project is named, its declarations are made known to the warehouse first.
    """
    where = location(project, warehouse)
    runner = opened(where, server, declare=where.is_named)
    with console.status("checking"):
        reports = runner.check(list(views or []) or None)
    if show_checks(reports):
        raise typer.Exit(1)


def show_checks(reports: list[CheckReport]) -> bool:
    """Print results of checks with failing rows; return whether an error failed."""
    if not reports:
        output.print("no check is declared: TBLPROPERTIES ('check.<name>.<kind>' = '…')", highlight=False, markup=False)
        return False
    output.print(check_table(reports, output.width))
    for report in reports:
        if report.problem is not None:
            output.print(f"{report.view}, {report.check.name}: {report.problem}", highlight=False, markup=False, soft_wrap=True)
        elif report.shown.rows:
            output.print(f"{report.view}, {report.check.name}:", highlight=False, markup=False, soft_wrap=True)
            output.print(rows_table(report.shown))
    return any(report.is_error for report in reports)
