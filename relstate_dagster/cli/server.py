"""``relstate server``: one process that keeps Spark for a warehouse."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from relstate_dagster.cli.app import WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import server_settings

verbs = typer.Typer(
    name="server",
    help="One process that keeps Spark for a warehouse; relstate run, relstate sql and Dagster have it do their work.",
    no_args_is_help=True,
)
app.add_typer(verbs)


@verbs.command()
def start(
    warehouse: WarehouseOption = None,
    idle_minutes: Annotated[
        float, typer.Option("--idle-minutes", min=0, help="After so long without a request it ends by itself.")
    ] = 30,
    memory: Annotated[
        float, typer.Option("--most-memory", min=0.5, metavar="GB", help="With more in use after a request it ends by itself.")
    ] = 6,
    warm_up: Annotated[
        bool,
        typer.Option("--warm-up/--no-warm-up", help="Run epochs over a small warehouse of its own until the first request."),
    ] = True,
) -> None:
    """Start the server of a warehouse, and wait until it answers.

    It has the settings of this environment.
    """
    from relstate_dagster.server.client import started  # noqa: PLC0415 - for these verbs only

    where = location(None, warehouse)
    with console.status("starting Spark in a process of its own"):
        server = started(server_settings(where, idle_minutes=idle_minutes, most_memory_gb=memory, warm_up=warm_up))
    registered = server.registered
    output.print(
        f"the server of {registered.warehouse} is process {registered.pid}, at {registered.address}; it ends after "
        f"{idle_minutes:g} minutes without a request",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@verbs.command()
def stop(warehouse: WarehouseOption = None) -> None:
    """End the server of a warehouse, after its present request."""
    from relstate_dagster.server.client import stopped  # noqa: PLC0415 - as above

    with console.status("waiting for its request to end"):
        was_there = stopped(location(None, warehouse).warehouse)
    output.print("it has ended" if was_there else "there is no server", highlight=False)


@verbs.command()
def status(warehouse: WarehouseOption = None) -> None:
    """Show the state of a warehouse's server; exit with 1 without one."""
    from relstate_dagster.server.channel import ServerGone  # noqa: PLC0415 - as above
    from relstate_dagster.server.client import find  # noqa: PLC0415

    server = find(location(None, warehouse).warehouse)
    try:
        found = None if server is None else server.status()
    except ServerGone:
        found = None
    if found is None:
        output.print("there is no server: relstate server start", highlight=False)
        raise typer.Exit(1)
    for name, text in _lines(found):
        output.print(f"{name:<12}{text}", highlight=False, markup=False, soft_wrap=True)


@verbs.command()
def logs(
    warehouse: WarehouseOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of the last lines.")] = 50,
) -> None:
    """Print the last lines of the server's log, also of an ended one."""
    from relstate_dagster.server.server_file import Place  # noqa: PLC0415 - as above

    path = Place(location(None, warehouse).warehouse).log_path
    if not path.is_file():
        output.print("no server of this warehouse has been started", highlight=False)
        raise typer.Exit(1)
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
        output.print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    unasked = "warming up" if found["is_warming_up"] else "nothing"
    doing = f"{found['doing']}, {found['doing_seconds']:.1f} s so far" if found["doing"] else unasked
    python = decimal(found["python_bytes"]) if found["python_bytes"] else "?"
    java = decimal(found["java_bytes"]) if found["java_bytes"] else "?"
    idle = f"{found['idle_seconds']:.0f} s, ends after {found['idle_minutes']:g} minutes" if not found["doing"] else "no"
    return [
        ("warehouse", found["warehouse"]),
        ("process", f"{found['pid']}, up {timedelta(seconds=round(found['up_seconds']))}, {found['requests']} requests done"),
        ("does", doing),
        ("idle", idle),
        ("memory", f"Python {python}, Java {java}; heap in use {decimal(found['java_heap_bytes'])}"),
        ("threads", f"Python {found['threads']}, Java {found['java_threads']}"),
        *(("setting", f"{name}: {value}") for name, value in found["settings"].items()),
    ]
