"""``relstate run``: one epoch."""

from __future__ import annotations

from typing import Annotated

import typer

from relstate_dagster.cli.app import ProjectOption, ViewsArgument, WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import open_project, start_spark
from relstate_dagster.cli.tables import advised, epoch_table, recomputed


@app.command()
def run(
    views: ViewsArgument = None,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    full_refresh: Annotated[
        list[str] | None, typer.Option("--full-refresh", help="Rebuild this view and those over it; may be repeated.")
    ] = None,
) -> None:
    """Bring views up to date: one epoch over what changed in their sources."""
    spark = start_spark()
    declared, _, runner = open_project(location(project, warehouse), spark)
    names = list(views or []) or [view.name for view in declared.views]
    reports = []
    # They are built after the last view is published, which can take minutes.
    then = "; now the indexes of sources" if any(source.indexes for source in declared.sources) else ""
    with console.status("running the epoch") as status:
        for report in runner.run(names, full_refresh=full_refresh or ()):
            reports.append(report)
            status.update(f"{report.view} done, {len(reports)} of {len(names)}{then if len(reports) == len(names) else ''}")
    output.print(epoch_table(reports))
    for line in (*recomputed(reports), *advised(reports)):
        output.print(line, highlight=False, markup=False)
