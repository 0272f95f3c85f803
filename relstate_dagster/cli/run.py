"""``relstate run``: one epoch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from relstate_dagster.cli.app import (
    ProjectOption,
    ServerOption,
    ViewsArgument,
    WaitOption,
    WarehouseOption,
    app,
    console,
    location,
    output,
)
from relstate_dagster.cli.check import show_checks
from relstate_dagster.cli.plan import ask_before_rebuilds
from relstate_dagster.cli.start import loaded, runner_of, start_spark
from relstate_dagster.cli.tables import epoch_table, remarks
from relstate_dagster.demo_project import check_is_home_of
from relstate_dagster.jobs.declare.checks import checks_of
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError

if TYPE_CHECKING:
    from rich.status import Status

    from relstate_dagster.jobs.api import EpochRunner, ViewReport, Warehouse
    from relstate_dagster.jobs.declare import Project
    from relstate_dagster.server.runner import ServerRunner
    from relstate_dagster.settings import Location

_ALL: Final = "--all"


@app.command()
def run(
    views: ViewsArgument = None,
    project: ProjectOption = None,
    warehouse: WarehouseOption = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", help="Rebuild this view and those over it; may be repeated. --full-refresh --all: all."),
    ] = None,
    every: Annotated[bool, typer.Option(_ALL, help="With --full-refresh: every view.", hidden=True)] = False,
    until: Annotated[
        list[str] | None,
        typer.Option("--until", metavar="SOURCE=VERSION", help="Read a source up to this version at most; may be repeated."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Check and count what every operator gives; a view that fails is left behind. Takes longer."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Make the checks that the views declare afterwards; exit with 1 if one fails.")
    ] = False,
    prune: Annotated[bool, typer.Option("--prune", help="First drop the views that the project does not declare.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Rebuild edited views without asking, at a terminal too.")] = False,
    wait: WaitOption = None,
    server: ServerOption = "auto",
) -> None:
    """Bring views up to date: one epoch over what changed in their sources."""
    from relstate_dagster.jobs.api import Warehouse, idle_reports, is_brief_run  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.declare.names import as_declared  # noqa: PLC0415

    where = location(project, warehouse)
    declared, home = loaded(where), Warehouse(where.warehouse, where.functions)
    if not where.is_named:
        check_is_home_of(declared, home)
    names = list(views or []) or [view.name for view in declared.views]
    rebuilt, until_version = list(full_refresh or []), versions(until or [])
    if every or _ALL in rebuilt:
        rebuilt = [view.name for view in declared.views]
    known = [*(view.name for view in declared.views), *home.read().views]
    names, rebuilt = ([as_declared(view, known) for view in given] for given in (names, rebuilt))
    idle = idle_reports(home, declared, names, full_refresh=rebuilt, until_version=until_version)
    if prune or (check and _has_checks(declared, names)):
        idle = None  # what is checked is looked at by Spark
    if idle is not None:
        _name_undeclared(home, declared)
        output.print(epoch_table(idle, output.width))
        if check:
            show_checks([])
        return
    if not (yes or rebuilt):
        ask_before_rebuilds(home, declared, names)
    doing = _Doing()
    is_brief = partial(is_brief_run, home, declared, names, rebuilt)
    runner = runner_of(where, declared, home, server, doing, is_brief, rebuilt)
    if prune:
        _prune(where, runner, home, declared)
    else:
        _name_undeclared(home, declared)
    # They are built after the last view is published, which can take minutes.
    then = "; now the indexes of sources" if any(source.indexes for source in declared.sources) else ""
    epoch = runner.run(names, full_refresh=rebuilt, until_version=until_version, strict=strict)
    is_complete = _shown(epoch, len(names), then, doing)
    passes = True
    if check:
        with console.status("checking"):
            check_reports = runner.check(names)
        passes = not show_checks(check_reports)
    if not (is_complete and passes):
        raise typer.Exit(1)


class _Doing:
    """Shows what has begun, and how far it is, while a status is shown."""

    status: Status | None = None

    def __call__(self, line: str) -> None:
        if self.status is not None:
            self.status.update(escape(line))


def _shown(epoch: Iterator[ViewReport], views: int, then: str, doing: _Doing) -> bool:
    """Run an epoch and print its reports; whether no view was left behind."""
    reports: list[ViewReport] = []
    failed: RelstateError | None = None
    with console.status("running the epoch") as status:
        doing.status = status
        try:
            for report in epoch:
                reports.append(report)
                done = len({r.view for r in reports if not r.is_repair})
                status.update(f"{report.view} done, {done} of {views}{then if done == views else ''}")
        except RelstateError as error:
            failed = error
    doing.status = None
    if failed is not None and not any(r.problem for r in reports):
        raise failed
    output.print(epoch_table(reports, output.width))
    for line in remarks(reports):
        output.print(line, highlight=False, markup=False, soft_wrap=True)
    return failed is None


def _has_checks(project: Project, names: list[str]) -> bool:
    """Whether some views may have checks; what no file declares any more the catalog knows."""
    declared = {view.name: view.properties for view in project.views}
    return any(name not in declared or checks_of(declared[name], name) for name in names)


def versions(texts: list[str]) -> dict[str, int]:
    """The versions by the names of sources that ``--until`` gives.

    Raises
    ------
    DeclarationError : one is written otherwise, or a source is named twice.
    """
    found: dict[str, int] = {}
    for text in texts:
        source, _, version = text.rpartition("=")
        if not source or not (version.isascii() and version.isdigit()):
            raise DeclarationError(f"--until {text}: write SOURCE=VERSION, as in --until orders=12")
        if source in found:
            raise DeclarationError(f"--until {text}: {source} is named twice")
        found[source] = int(version)
    return found


def _prune(where: Location, runner: EpochRunner | ServerRunner, home: Warehouse, project: Project) -> None:
    """Drop the views of the warehouse that the project does not declare any more."""
    from relstate_dagster.jobs.api import Registry  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.server.runner import ServerRunner  # noqa: PLC0415 - where there is a server only

    left = _left(home, project)
    if not (isinstance(runner, ServerRunner) and runner.has_dropped(left)):
        for name in left:
            Registry(start_spark(where), home).drop(name, "view")
    for name in left:
        console.print(f"dropped {name}, which no file declares any more", highlight=False)


def _name_undeclared(home: Warehouse, project: Project) -> None:
    left = _left(home, project)
    if left:
        console.print(
            f"no file declares {', '.join(left)} any more: not run. Drop with relstate run --prune, or relstate drop NAME",
            highlight=False,
        )


def _left(home: Warehouse, project: Project) -> list[str]:
    """Views that no file declares, each before those that it reads."""
    from relstate_dagster.jobs.catalog.relations import topological  # noqa: PLC0415 - imports PySpark

    declared = {view.name for view in project.views}
    return [name for name in reversed(topological(home.read())) if name not in declared]
