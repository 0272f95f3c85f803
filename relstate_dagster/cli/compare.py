"""``relstate verify``: views against their queries run in full."""

from __future__ import annotations

import typer

from relstate_dagster.cli.app import ViewsArgument, WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import start_spark
from relstate_dagster.cli.tables import verify_table


@app.command()
def verify(views: ViewsArgument = None, warehouse: WarehouseOption = None) -> None:
    """Compare views with a full recompute, both ways; exit with 1 on any difference."""
    from relstate_dagster.jobs.api import EpochRunner, Warehouse  # noqa: PLC0415 - imports PySpark

    where = location(None, warehouse)
    spark = start_spark(where)
    runner = EpochRunner(spark, Warehouse(where.warehouse, where.functions))
    with console.status("running every query in full"):
        reports = runner.verify(list(views or []) or None)
    output.print(verify_table(reports, output.width))
    for report in reports:
        if report.problem is not None:
            output.print(f"{report.view}: {report.problem}", highlight=False, markup=False, soft_wrap=True)
    if any(not r.equal for r in reports):
        raise typer.Exit(1)
