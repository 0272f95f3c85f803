"""``relstate drop VIEW``: a view, its state and its published table."""

from __future__ import annotations

from typing import Annotated

import typer

from relstate_dagster.cli.app import WaitOption, WarehouseOption, app, console, location
from relstate_dagster.cli.start import start_spark


@app.command()
def drop(
    names: Annotated[list[str], typer.Argument(help="Views, or sources that nothing reads; dropped in this order.")],
    warehouse: WarehouseOption = None,
    wait: WaitOption = None,
) -> None:
    """Drop views (or sources) of the warehouse, with the files that it made for them."""
    from relstate_dagster.jobs.api import Registry, Warehouse  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.declare.names import as_declared  # noqa: PLC0415

    where = location(None, warehouse)
    home = Warehouse(where.warehouse, where.functions)
    registry = Registry(start_spark(where), home)
    for given in names:
        state = home.read()
        name = as_declared(given, [*state.sources, *state.plain_views, *state.views])
        kind = "source" if name in state.sources else "plain view" if name in state.plain_views else "view"
        registry.drop(name, kind)
        console.print(f"dropped {name}", highlight=False)
