"""``relstate plan``: preview of the next run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from relstate_dagster.cli.app import ProjectOption, WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import loaded, store_plans
from relstate_dagster.cli.tables import Shown, fitted
from relstate_dagster.demo_project import check_is_home_of
from relstate_dagster.jobs.declare import Project

if TYPE_CHECKING:
    from rich.table import Table

    from relstate_dagster.jobs.api import ViewPreview, Warehouse


@app.command()
def plan(
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a view that is built would be computed in full, or cannot run.")
    ] = False,
    store: Annotated[
        bool,
        typer.Option("--store", help="First plan new and edited views and store their plans, as Spark Connect needs."),
    ] = False,
) -> None:
    """Show which views the next run builds, rebuilds or updates, and why.

    Needs no Spark, and writes nothing, but for --store.
    """
    from relstate_dagster.jobs.api import Action, Warehouse  # noqa: PLC0415 - imports PySpark

    where = location(project, warehouse)
    home, declared = Warehouse(where.warehouse, where.functions), loaded(where)
    if not where.is_named:
        check_is_home_of(declared, home)
    if store:
        store_plans(where, declared, home)
    found = planned(home, declared)
    output.print(_table(found, output.width))
    for line in _reasons(found):
        output.print(line, highlight=False, markup=False, soft_wrap=True)
    if strict and any(o.is_in_full or o.action is Action.FAIL for o in found):
        raise typer.Exit(1)


def planned(home: Warehouse, project: Project) -> list[ViewPreview]:
    """Preview of a project's next run."""
    from relstate_dagster.jobs.api import preview_run  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.engine import SPARKS_OWN_TASKS, SparkSettings  # noqa: PLC0415 - as above

    return preview_run(home, project, most_tasks=SparkSettings().shuffle_tasks or SPARKS_OWN_TASKS)


def ask_before_rebuilds(home: Warehouse, project: Project, views: list[str]) -> None:
    """Show what is rebuilt and ask, where a person sits at a terminal.

    Raises
    ------
    typer.Exit : no.
    """
    from relstate_dagster.jobs.api import Action  # noqa: PLC0415 - imports PySpark

    if not (sys.stdin.isatty() and console.is_terminal):
        return
    rebuilt = [o for o in planned(home, project) if o.action is Action.REBUILD and o.view in views]
    if not rebuilt:
        return
    console.print(_table(rebuilt, console.width))
    for line in _reasons(rebuilt):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not typer.confirm("Readers see the old rows until these are built. Go on?", default=True, err=True):
        raise typer.Exit(1)


def _table(found: list[ViewPreview], width: int) -> Table:
    columns = [Shown("view"), Shown("run does"), Shown("reads", 2), Shown("about", 1, is_number=True)]
    rows = [[o.view, o.action.value, o.reads, "" if o.seconds is None else f"{o.seconds:.1f} s"] for o in found]
    return fitted(columns, rows, width)


def _reasons(found: list[ViewPreview]) -> list[str]:
    return [f"{o.view}: {o.why}" for o in found if o.why]
