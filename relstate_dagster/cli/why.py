"""``relstate why VIEW --key …``: source rows of a view's row, and recent changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from relstate_dagster.cli.app import ServerOption, WarehouseOption, app, location, output
from relstate_dagster.cli.start import answers_of
from relstate_dagster.cli.values import Format, row_text

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import Input, SourceChange, SourceCommit, Why


@app.command()
def why(
    view: str,
    key: Annotated[str, typer.Option(help="The row: values of columns of the view, as name=value pairs with commas between.")],
    epoch: Annotated[int | None, typer.Option(help="As of this epoch, and what changed in it; by default the last.")] = None,
    warehouse: WarehouseOption = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows to show of each source. All are counted.")] = 10,
    form: Annotated[Format, typer.Option("--format", help="A tree, or a JSON object.")] = Format.TABLE,
    server: ServerOption = "auto",
) -> None:
    """Show source rows behind a view's row, and the commits that changed it."""
    from relstate_dagster.jobs.api import Warehouse  # noqa: PLC0415 - imports PySpark

    where = location(None, warehouse)
    home = Warehouse(where.warehouse, where.functions)
    view = home.read().view(view).name  # an unknown name fails before Spark starts
    as_json = form is Format.JSON
    found = answers_of(where, home, server).why(view, key, epoch=epoch, limit=limit, as_json=as_json)
    if as_json:
        typer.echo(json.dumps(_as_json(found), ensure_ascii=False))
        return
    for line in found.notes:
        output.print(line, highlight=False, markup=False)
    output.print(_tree(found), highlight=False)


def _tree(found: Why) -> Tree:
    tree = Tree(Text(f"{found.view}, epoch {found.epoch}", style="bold"), guide_style="dim")
    if found.matched > 1:
        tree.add(Text(f"{found.matched:,} rows have this key; this is the first"))
    copies = max(found.copies)
    tree.add(Text(row_text(found.row) + (f"  × {copies}" if copies > 1 else "")))
    change = _change(found)
    if change is not None:
        tree.add(change)
    _add_inputs(tree, found.inputs)
    return tree


def _change(found: Why) -> Tree | None:
    """Change of the row since the epoch before."""
    if found.change is None:
        return None
    since = f"since epoch {found.before}: {found.change}"
    now, before = found.copies
    if found.change == "changed" and now != before:
        since += f", {before:,} copies → {now:,}"
    tree = Tree(Text(since))
    if found.old is not None:
        for name in found.differing:
            tree.add(Text(f"{name}: {found.old[name]} → {found.row[name]}"))
    return tree


def _add_inputs(tree: Tree, inputs: Iterable[Input]) -> None:
    for item in inputs:
        at = f"epoch {item.epoch}" if item.is_view else f"version {item.version}"
        shown = f", {len(item.shown):,} shown" if len(item.shown) < item.rows else ""
        what = "view" if item.is_view else "source"
        branch = tree.add(Text(f"{what} {item.name} ({at}): {_rows(item.rows)}{shown}", style="bold"))
        for note in item.notes:
            branch.add(Text(note, style="italic"))
        for row in item.shown:
            branch.add(Text(row_text(row)))
        if item.inserted or item.deleted:
            branch.add(_changes(item))
        _add_inputs(branch, item.inputs)


def _changes(item: Input) -> Tree:
    shown = sum(change.copies for change in item.changes)
    more = f", {shown:,} shown" if shown < item.inserted + item.deleted else ""
    tree = Tree(Text(f"changed since: {item.inserted:,} inserted, {item.deleted:,} deleted{more}"))
    for commit in item.commits:
        of_commit = tree.add(Text(_commit(commit)))
        for change in item.changes:
            if change.version == commit.version:
                of_commit.add(Text(_change_text(change)))
    return tree


def _change_text(change: SourceChange) -> str:
    copies = f"  × {change.copies}" if change.copies > 1 else ""
    return f"{'+' if change.inserted else '−'} {row_text(change.row)}{copies}"


def _commit(commit: SourceCommit) -> str:
    at = None if commit.time is None else commit.time.astimezone().isoformat(" ", "seconds")
    by = None if commit.user is None else f"by {commit.user}"
    return ", ".join(part for part in (f"version {commit.version}", commit.operation, by, at, commit.engine) if part)


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _as_json(found: Why) -> dict[str, Any]:
    return {
        "view": found.view,
        "epoch": found.epoch,
        "before": found.before,
        "matched": found.matched,
        "row": found.row,
        "copies": found.copies[0],
        "change": found.change,
        "old": found.old,
        "old_copies": found.copies[1],
        "differing": list(found.differing),
        "inputs": [_input(item) for item in found.inputs],
        "notes": list(found.notes),
    }


def _input(item: Input) -> dict[str, Any]:
    common = {"name": item.name, "rows": item.rows, "shown": list(item.shown), "notes": list(item.notes)}
    if item.is_view:
        return {"kind": "view", **common, "epoch": item.epoch, "inputs": [_input(below) for below in item.inputs]}
    commits = {commit.version: commit for commit in item.commits}
    changes = [
        {
            "change": "inserted" if change.inserted else "deleted",
            "row": change.row,
            "copies": change.copies,
            "commit": _commit_json(commits[change.version]),
        }
        for change in item.changes
    ]
    counts = {"inserted": item.inserted, "deleted": item.deleted}
    return {"kind": "source", **common, "version": item.version, **counts, "changes": changes}


def _commit_json(commit: SourceCommit) -> dict[str, Any]:
    return {
        "version": commit.version,
        "operation": commit.operation,
        "user": commit.user,
        "engine": commit.engine,
        "time": None if commit.time is None else commit.time.isoformat(),
    }
