"""Common parts of all verbs: the application, consoles, options."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeAlias

import typer
from rich.console import Console
from typer.core import TyperGroup

from relstate_dagster.jobs.engine.logs import LEVELS
from relstate_dagster.settings import Location
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.address import Address


class Interrupted(Exception):
    """Ctrl-C was pressed."""


class _Verbs(TyperGroup):
    """Leaves Ctrl-C to :func:`relstate_dagster.cli.entry.main`: typer prints Aborted, and ends with 1."""

    def invoke(self, ctx: Any) -> object:
        with _noticed_interrupts() as came:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as stop:
                raise Interrupted from stop
            except Exception as error:
                if came or _was_interrupted(error):
                    raise Interrupted from error
                raise


@contextmanager
def _noticed_interrupts() -> Iterator[list[int]]:
    """Whether Ctrl-C came, whoever caught it.

    While an object of Java's is let go, Python drops it.
    """
    came: list[int] = []

    def interrupted(number: int, _frame: object) -> NoReturn:
        came.append(number)
        raise KeyboardInterrupt

    # A signal is heard by the main thread alone; one that is ignored, or answered by somebody else, stays so.
    is_heard = threading.current_thread() is threading.main_thread()
    is_ours = is_heard and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, interrupted)
    try:
        yield came
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an error came of Ctrl-C.

    A call into the JVM that is broken off leaves a connection that answers no more.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


app = typer.Typer(
    name="relstate",
    cls=_Verbs,
    help="Materialized views in Spark SQL, maintained incrementally.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
#: What people read goes here; results of a query go to standard output.
console = Console(stderr=True)
output = Console()

#: Level of Spark's log at the terminal; set by ``--log-level``, which stands before the verb.
LOG_LEVEL: Final = "RELSTATE_LOG_LEVEL"

ProjectOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--project", help="Folder of .sql files or of a dbt project; by default $RELSTATE_PROJECT, else the demo."),
]
WarehouseOption: TypeAlias = Annotated[
    str | None, typer.Option("--warehouse", help="Folder of the warehouse; by default $RELSTATE_WAREHOUSE.")
]
ViewsArgument: TypeAlias = Annotated[list[str] | None, typer.Argument(help="Views; all by default.")]


def _wait(seconds: float | None) -> None:
    if seconds is not None:
        os.environ["RELSTATE_LOCK_WAIT_SECONDS"] = str(seconds)


WaitOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0,
        callback=_wait,
        metavar="SECONDS",
        help="Seconds to wait for runs that have the same views; by default $RELSTATE_LOCK_WAIT_SECONDS, else 600.",
    ),
]


ServerOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--server",
        envvar="RELSTATE_SERVER",
        metavar="auto|never|start|ADDRESS",
        help="Whether the warehouse's server does it: if there is one, never, or started for it.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        output.print(f"relstate {importlib.metadata.version('relstate-dagster')}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            envvar=LOG_LEVEL,
            help=f"Level of Spark's log at the terminal: {', '.join(LEVELS)}. Its errors are in _relstate/logs as well.",
        ),
    ] = LEVELS[0],
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    """Materialized views in Spark SQL, maintained incrementally."""
    if log_level not in LEVELS:
        raise DeclarationError(f"--log-level {log_level}: there are {', '.join(LEVELS)}")
    os.environ[LOG_LEVEL] = log_level


def location(project: Path | None, warehouse: str | None) -> Location:
    """The project and warehouse that options and environment name."""
    found = Location.from_environment()
    chosen = found.warehouse if warehouse is None else Address.parse(warehouse).spark
    if found.functions and str(Path.cwd()) not in sys.path:
        # A module beside the project is found as `python -m` and Dagster find it.
        sys.path.insert(0, str(Path.cwd()))
    if project is None:
        return replace(found, warehouse=chosen)
    return replace(found, project=project.absolute(), warehouse=chosen, is_named=True)
