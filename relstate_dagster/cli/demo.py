"""``relstate demo``: views over real flights, built, then maintained day by day."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from relstate_dagster.cli.app import WarehouseOption, app, console, location, output
from relstate_dagster.cli.start import open_project, start_spark
from relstate_dagster.cli.tables import epoch_table, verify_table
from relstate_dagster.settings import DEMO_PROJECT, Location

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import EpochRunner, ViewReport
    from relstate_dagster.jobs.declare import Project


@app.command()
def demo(
    warehouse: WarehouseOption = None,
    days: Annotated[int, typer.Option(min=0, help="Days to play.")] = 3,
    only_load: Annotated[bool, typer.Option("--only-load", help="Load the sources and stop.")] = False,
) -> None:
    """Load flights, build views, play some days, and verify every view."""
    from relstate_dagster.jobs.declare import load_project  # noqa: PLC0415
    from relstate_dagster.jobs.demo import LOADED_THROUGH, FlightPlayer  # noqa: PLC0415 - imports PySpark

    where = Location(DEMO_PROJECT, location(None, warehouse).warehouse)
    spark = start_spark(where, is_brief=True)
    project = load_project(where.project, warehouse=where.warehouse)
    player = FlightPlayer(spark, f"{where.warehouse}/sources", project.sources)
    if not player.is_loaded():
        with _progress("loading flights, weather, planes, airports and airlines of early 2013", 5) as (bar, task):
            player.load(LOADED_THROUGH, lambda name, rows: _advance(bar, task, f"{name}: {rows:,} rows"))
    if only_load:
        console.print("the sources are loaded")
        return
    project, _, runner = open_project(where, spark)
    output.print("[bold]backfill[/]: every view built once from its sources")
    _epoch(runner, project, compare=False)
    for _ in range(days):
        with console.status("a day goes by"):
            played = player.play_day()
        output.print(
            f"\n[bold]{played.day}[/]: {played.flights_appended:,} flights, {played.flights_corrected:,} late corrections, "
            f"{played.flights_cancelled:,} cancellations, {played.planes_registered} planes registered again, "
            f"{played.weather_appended} weather reports"
        )
        _epoch(runner, project, compare=True)
    with console.status("running every query in full, to compare"):
        reports = runner.verify()
    output.print(verify_table(reports, output.width))
    if any(not r.equal for r in reports):
        raise typer.Exit(1)
    output.print(f"[green]all {len(reports)} views equal their queries run in full[/]")
    output.print(
        "These flights are few, and the process is young. A full recompute takes longer as the data grows, an epoch does not: "
        "docs/benchmarks.md has both over up to sixty million rows."
    )


def _epoch(runner: EpochRunner, project: Project, *, compare: bool) -> None:
    names = [view.name for view in project.views]
    reports: list[ViewReport] = []
    started = time.perf_counter()
    with _progress("epoch", len(names)) as (bar, task):
        for report in runner.run(names):
            reports.append(report)
            _advance(bar, task, report.view)
    # Not the sum of the views' seconds: they run side by side.
    incremental = time.perf_counter() - started
    full = None
    if compare:
        with console.status("the same by full recompute, for comparison"):
            full = runner.full_recompute_seconds([r.view for r in reports if not r.skipped])
    output.print(epoch_table(reports, output.width, full))
    if full:
        output.print(
            f"{incremental:.1f} s incrementally, {sum(full.values()):.1f} s by full recompute and write, one after the other"
        )


class _progress:  # noqa: N801 - reads as a function
    """A progress bar with one task."""

    def __init__(self, title: str, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._title, self._total = title, total

    def __enter__(self) -> tuple[Progress, int]:
        self._bar.start()
        return self._bar, int(self._bar.add_task(self._title, total=self._total))

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _advance(bar: Progress, task: int, done: str) -> None:
    bar.update(task, advance=1, description=done)  # type: ignore[arg-type]
