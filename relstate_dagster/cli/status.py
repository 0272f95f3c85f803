"""``relstate status``: how far each view has come. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from relstate_dagster.cli.app import ProjectOption, WarehouseOption, app, console, location, output
from relstate_dagster.cli.tables import Shown, fitted
from relstate_dagster.jobs.declare import load_project

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import Warehouse
    from relstate_dagster.jobs.catalog.entries import SourceEntry, ViewEntry
    from relstate_dagster.jobs.catalog.state import CatalogState


@app.command()
def status(warehouse: WarehouseOption = None, project: ProjectOption = None) -> None:
    """List views with epoch, strategy and versions, and how far sources are ahead."""
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.run.freshness import new_files  # noqa: PLC0415 - as above

    where = location(project, warehouse)
    home = Warehouse(where.warehouse)
    state = home.read()
    remarks: list[str] = []
    rows = []
    for view in state.views.values():
        found = list(_remarks(home, state, view))
        remarks += [f"{view.name}: {remark}" for remark in found]
        rows.append(_view(state, view, is_well=not found))
    columns = [
        Shown("view"),
        Shown("epoch", is_number=True),
        Shown("is"),
        Shown("strategy", 3),
        Shown("version", 2, is_number=True),
        Shown("state version", 4, is_number=True),
        Shown("reads", 5),
    ]
    output.print(fitted(columns, rows, output.width))
    columns = [
        Shown("source"),
        Shown("pinned", is_number=True),
        Shown("newest", is_number=True),
        Shown("key", 1),
        Shown("indexes", 2),
        Shown("path", 3),
    ]
    output.print(fitted(columns, [_source(home, state, source) for source in state.sources.values()], output.width))
    remarks += [f"{name}: not read yet: {files}" for name, files in new_files(state, state.sources).items()]
    remarks += _under_way(home, state)
    if where.is_named:
        declared = {view.name for view in load_project(where.project, warehouse=where.warehouse).views}
        remarks += [
            f"{name}: no file declares it any more; drop it with relstate drop {name}"
            for name in state.views
            if name not in declared
        ]
    for remark in remarks:
        console.print(remark, highlight=False, markup=False, soft_wrap=True)


def _view(state: CatalogState, view: ViewEntry, *, is_well: bool) -> list[str]:
    versions = state.versions_at(view.name)
    shown = [str(v) if v is not None else "" for v in (versions.view_version, versions.state_version)] if versions else ["", ""]
    condition = "up" if is_well else "[red]see below[/]"
    return [view.name, str(view.last_epoch or "none"), condition, view.strategy, *shown, ", ".join(view.reads)]


def _remarks(home: Warehouse, state: CatalogState, view: ViewEntry) -> Iterator[str]:
    """Problems of a view."""
    from relstate_dagster.jobs.inspect.health import problems_of_tables  # noqa: PLC0415 - imports PySpark
    from relstate_dagster.jobs.run.slices import built_so_far  # noqa: PLC0415 - as above

    working = state.working.views[view.name]
    if working.built_until is not None:
        yield f"is built in slices, {built_so_far(working)}: relstate run goes on from there"
    elif view.last_epoch is None and view.problem is None:
        yield "not built yet: relstate run"
    if view.problem is not None:
        at = "" if view.problem.epoch is None else f" at epoch {view.problem.epoch}"
        yield f"left behind{at}: {view.problem.reason}"
    if view.name in state.rebuilds:
        yield "is rebuilt by the next run; until then it is as before"
    yield from problems_of_tables(home, state, view)


def _under_way(home: Warehouse, state: CatalogState) -> Iterator[str]:
    """Runs at work, and unfinished epochs of dead runs."""
    from relstate_dagster.jobs.catalog.claims import Claims  # noqa: PLC0415 - imports PySpark

    looking = Claims(home, "status", "looking")
    for claim in state.claims.values():
        views = ", ".join(claim.views)
        if not looking.is_dead(claim):
            yield f"{claim} {views}, is at work"
        elif claim.epoch is not None:
            yield (
                f"epoch {claim.epoch.epoch} has begun and is not complete: run {claim.run_id} has died; the next one settles "
                f"it (of {views})"
            )


def _source(home: Warehouse, state: CatalogState, source: SourceEntry) -> list[str]:
    from relstate_dagster.state_lib.errors import SourceError  # noqa: PLC0415 - as above

    pin = state.last_pins.get(source.name)
    try:
        newest = str(home.source(source).newest_version(pin.version if pin else None))
    except SourceError:
        newest = "[red]gone[/]"
    key = ", ".join(source.primary_key) or ("append-only" if source.append_only else "none")
    indexes = ", ".join(_index(home, source, column) for column in source.indexes)
    return [source.name, str(pin.version) if pin else "", newest, key, indexes, source.path]


def _index(home: Warehouse, source: SourceEntry, column: str) -> str:
    contents = home.index(source, column).contents
    return f"{column} (not built)" if contents is None else f"{column} (version {contents.version})"
