"""What all verbs share: the application they register with, consoles, options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from relstate_dagster.settings import Location

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
