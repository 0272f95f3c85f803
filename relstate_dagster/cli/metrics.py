"""``relstate metrics``: the lag of each view for Prometheus. Needs no Spark."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from relstate_dagster.cli.app import WarehouseOption, app, console, location, output


@app.command()
def metrics(
    warehouse: WarehouseOption = None,
    serve: Annotated[
        str | None,
        typer.Option("--serve", metavar="HOST:PORT", help="Serve them over HTTP until interrupted, as at 127.0.0.1:9464."),
    ] = None,
) -> None:
    """Print the lag of each view in Prometheus' text format, or serve it.

    It is read from the catalog and from logs of sources each time. Metrics of runs are recorded by the processes that run.
    """
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.run.prometheus import lags_text, serve_lags  # noqa: PLC0415 - as above

    home = Warehouse(location(None, warehouse).warehouse)
    if serve is None:
        output.file.write(lags_text(home))
        return
    end = serve_lags(home, serve)
    console.print(f"serving metrics of {home.root} at http://{serve}/metrics", highlight=False, markup=False, soft_wrap=True)
    try:
        threading.Event().wait()
    finally:
        end()
