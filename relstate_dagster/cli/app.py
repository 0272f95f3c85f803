"""The command line's frame: verbs, shared options, and errors without a traceback."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape

from relstate_dagster.settings import Location
from state_lib.errors import RelstateError

app = typer.Typer(
    name="relstate",
    help="Materialized views in Spark SQL, maintained incrementally.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
#: What people read goes here; results of a query go to standard output.
console = Console(stderr=True)
output = Console()

ProjectOption: TypeAlias = Annotated[
    Path | None, typer.Option("--project", help="Folder of .sql files; by default $RELSTATE_PROJECT, else the demo.")
]
WarehouseOption: TypeAlias = Annotated[
    str | None, typer.Option("--warehouse", help="Folder of the warehouse; by default $RELSTATE_WAREHOUSE.")
]
ViewsArgument: TypeAlias = Annotated[list[str] | None, typer.Argument(help="Views; all by default.")]


def location(project: Path | None, warehouse: str | None) -> Location:
    """The project and warehouse that options and environment name."""
    found = Location.from_environment()
    chosen = found.warehouse if warehouse is None else warehouse
    if warehouse is not None and "://" not in warehouse:
        chosen = str(Path(warehouse).absolute())
    if found.functions and str(Path.cwd()) not in sys.path:
        # A module beside the project is found as `python -m` and Dagster find it.
        sys.path.insert(0, str(Path.cwd()))
    return Location(found.project if project is None else project.absolute(), chosen, found.functions)


def main() -> None:
    """Run the command line; a user's error is printed in one line and exits with 1."""
    # Importing a verb registers it; heavy imports stay inside the verbs.
    from relstate_dagster.cli import (  # noqa: F401, PLC0415
        compact,
        compare,
        demo,
        doctor,
        explain,
        init,
        prepare,
        run,
        sql,
        state,
        status,
        vacuum,
    )

    try:
        app()
    except RelstateError as error:
        console.print(f"[red]{type(error).__name__}[/]: {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)


def console_script() -> NoReturn:
    """The installed command: :func:`main` in a process of its own."""
    code: int | str | None = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    leave(code if isinstance(code, int) else int(code is not None))


def leave(code: int) -> NoReturn:
    """End the process with this code, without tearing the interpreter down.

    Native threads (Arrow's, the JVM gateway's) may still be there; a teardown that meets one of them aborts, and a run
    whose work is committed would then be reported as failed. The JVM ends by itself when its parent is gone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
