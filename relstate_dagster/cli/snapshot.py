"""``relstate snapshot``: the Delta versions of views that belong together. Needs no Spark."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from relstate_dagster.cli.app import ViewsArgument, WarehouseOption, app, console, location, output
from relstate_dagster.cli.tables import Shown, fitted


@app.command()
def snapshot(
    views: ViewsArgument = None,
    epoch: Annotated[int | None, typer.Option("--epoch", help="As of this epoch; by default the newest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON, for programs.")] = False,
    warehouse: WarehouseOption = None,
) -> None:
    """Show the Delta version of each view at an epoch, for consistent reads."""
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.api import snapshot as take_snapshot  # noqa: PLC0415 - as above

    found = take_snapshot(Warehouse(location(None, warehouse).warehouse), views or None, epoch)
    if as_json:
        typer.echo(json.dumps({"views": {n: asdict(v) for n, v in found.views.items()}, "mixed": found.mixed}))
        return
    columns = [Shown("view"), Shown("epoch", is_number=True), Shown("version", is_number=True), Shown("path", 1)]
    rows = [[v.view, str(v.epoch), str(v.version), v.path] for v in found.views.values()]
    output.print(fitted(columns, rows, output.width))
    for source, versions in found.mixed.items():
        read = ", ".join(f"{view} {version}" for view, version in versions.items())
        console.print(
            f"these views have not read the same version of {source}: {read}; one run over all of them brings them together",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
