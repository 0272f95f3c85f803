"""``relstate test``: tests of views, from YAML files beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from relstate_dagster.cli.app import ProjectOption, ViewsArgument, WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import log_settings
from relstate_dagster.cli.tables import row_cells
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.declare.view_tests import SUFFIXES, load_view_tests

if TYPE_CHECKING:
    from relstate_dagster.jobs.view_tests import CaseReport


@app.command("test")
def run_tests(views: ViewsArgument = None, project: ProjectOption = None, warehouse: WarehouseOption = None) -> None:
    """Run the tests of views, each in its own warehouse; exit with 1 on failure."""
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.engine import SparkSettings, create_session  # noqa: PLC0415
    from relstate_dagster.jobs.view_tests import ViewTestRunner  # noqa: PLC0415

    where = location(project, warehouse)
    declared = load_project(where.project, warehouse=where.warehouse)
    wanted = {declared.view(name).name for name in views or []}
    chosen = [test for test in load_view_tests(where.project, declared) if not wanted or test.view in wanted]
    if not chosen:
        of = f" of {', '.join(sorted(wanted))}" if wanted else ""
        output.print(f"there is no test{of} in {where.project}: write VIEW{SUFFIXES[0]}", highlight=False, markup=False)
        return
    with console.status("starting Spark"):
        settings = SparkSettings(logs=log_settings(None), stores=where.stores, is_brief=True)
        spark = create_session(settings if settings.is_local else replace(settings, master="local[*]", stores=()))
    runner = ViewTestRunner(spark, declared, Warehouse(where.warehouse), where.functions)
    failed = 0
    with console.status("running tests") as status:
        for report in runner.run(chosen):
            _print(report)
            failed += not report.passed
            status.update(f"running tests, the last one was {report.test.name}")
    output.print(f"{len(chosen) - failed} passed, {failed} failed", highlight=False)
    if failed:
        raise typer.Exit(1)


def _print(report: CaseReport) -> None:
    test = report.test
    result = "[green]passed[/]" if report.passed else "[red]FAILED[/]"
    output.print(result, end=" ")
    ran = f"{report.epochs} epochs, {report.strategy}, {report.seconds:.1f} s"
    output.print(f"{test.view}: {test.name} ({ran})", highlight=False, markup=False, soft_wrap=True)
    if report.problem is None:
        return
    at = {None: "", 0: "what is given: "}.get(report.step, f"step {report.step}: ")
    output.print(f"  {test.where}: {at}{report.problem}", highlight=False, markup=False, soft_wrap=True)
    if report.missing.rows or report.unexpected.rows:
        columns = report.missing.columns or report.unexpected.columns
        table = Table("", *columns, header_style="bold")
        for shown, what in ((report.missing, "missing"), (report.unexpected, "unexpected")):
            for row in shown.rows:
                table.add_row(what, *row_cells(row))
        output.print(table)
