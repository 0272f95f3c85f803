"""``relstate status``: how far each view has come. Needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from relstate_dagster.cli.app import WarehouseOption, app, console, location, output

if TYPE_CHECKING:
    from jobs.api import Warehouse
    from jobs.catalog.entries import SourceEntry


@app.command()
def status(warehouse: WarehouseOption = None) -> None:
    """List views with their epoch, strategy and versions, and sources with how far they are ahead."""
    from jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark

    home = Warehouse(location(None, warehouse).warehouse)
    state = home.read()
    views = Table("view", "strategy", "epoch", "view version", "state version", "reads", header_style="bold")
    for view in state.views.values():
        versions = state.versions_at(view.name)
        shown = (
            [str(v) if v is not None else "" for v in (versions.view_version, versions.state_version)] if versions else ["", ""]
        )
        views.add_row(view.name, view.strategy, str(view.last_epoch or "not yet run"), *shown, ", ".join(view.reads))
    sources = Table("source", "key", "indexes", "pinned", "newest", "path", header_style="bold")
    pins = state.last_pins
    for source in state.sources.values():
        pin = pins.get(source.name)
        newest = home.source(source).log.latest_version(pin.version if pin else None)
        key = ", ".join(source.primary_key) or ("append-only" if source.append_only else "none")
        indexes = ", ".join(_index(home, source, column) for column in source.indexes)
        sources.add_row(source.name, key, indexes, str(pin.version) if pin else "", str(newest), source.path)
    output.print(views)
    output.print(sources)
    running = state.running_epoch
    if running is not None:
        console.print(f"epoch {running.epoch} has begun and is not complete (run {running.run_id}); the next run finishes it")


def _index(home: Warehouse, source: SourceEntry, column: str) -> str:
    contents = home.index(source, column).contents
    return f"{column} (not built)" if contents is None else f"{column} (version {contents.version})"
