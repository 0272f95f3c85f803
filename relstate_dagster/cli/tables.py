"""Tables that several verbs print."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.markup import escape, render
from rich.table import Table

from relstate_dagster.jobs.view_epoch.reports import CheckReport, VerifyReport, ViewReport
from relstate_dagster.jobs.view_epoch.shown_rows import Cells, ShownRows

_PADDING = 3


@dataclass(frozen=True, slots=True)
class Shown:
    """A column of a table: heading, and priority.

    0 is never left out where the terminal is narrow.
    """

    name: str
    left_out: int = 0
    is_number: bool = False


def fitted(columns: Sequence[Shown], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table without cut cells.

    If it is too wide, columns are left out, and at last lines are wrapped.
    """
    places = list(range(len(columns)))
    widths = [max(len(c.name), *(_width(row[n]) for row in rows), 0) if rows else len(c.name) for n, c in enumerate(columns)]
    while sum(widths[n] + _PADDING for n in places) + 1 > width:
        least = max(places, key=lambda n: columns[n].left_out)
        if columns[least].left_out == 0:
            break
        places.remove(least)
    table = Table(header_style="bold")
    for n in places:
        # Names are what people copy: they are never broken in two.
        table.add_column(columns[n].name, justify="right" if columns[n].is_number else "left", no_wrap=n == 0, overflow="fold")
    for row in rows:
        table.add_row(*(row[n] for n in places))
    return table


def _width(cell: str) -> int:
    return max((len(line) for line in render(cell).plain.split("\n")), default=0)


def wrapped_plan(text: str, width: int) -> str:
    """A plan with lines that fit, what is continued indented below where it began."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = re.match(r"[\s│├└─]*", line)
        depth = len(indent.group()) if indent else 0
        lines += textwrap.wrap(
            line, max(width, depth + 30), subsequent_indent=" " * (depth + 4), break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def changes_in(report: ViewReport) -> str:
    """Rows in by relation, as ``flights +10 −2``, and how many of them came late."""
    rows = ", ".join(f"{name} +{plus:,} −{minus:,}" for name, (plus, minus) in report.rows_in.items() if plus or minus)
    return f"{rows} ({report.late_rows:,} late)" if report.late_rows else rows


def epoch_table(reports: Sequence[ViewReport], width: int, full_seconds: dict[str, float] | None = None) -> Table:
    """One line a view: rows in and out, seconds, and a full recompute's if measured."""
    columns = [
        Shown("view"),
        Shown("epoch", 1, is_number=True),
        Shown("rows in", 2),
        Shown("rows out"),
        Shown("seconds", is_number=True),
    ]
    if full_seconds is not None:
        columns.append(Shown("in full", is_number=True))
    rows = []
    for report in reports:
        out = "unchanged" if report.skipped else f"+{report.rows_inserted:,} −{report.rows_deleted:,}"
        if report.problem is not None:
            out = "[red]left behind[/]"
        rows_in = changes_in(report) or ("backfill" if report.rows_inserted and not report.rows_in else "")
        name = f"{report.view} (repaired)" if report.is_repair else report.view
        row = [name, str(report.epoch or ""), rows_in, out, f"{sum(report.seconds.values()):.2f}"]
        if full_seconds is not None:
            row.append(f"{full_seconds[report.view]:.2f}" if report.view in full_seconds else "")
        rows.append(row)
    return fitted(columns, rows, width)


def remarks(reports: Sequence[ViewReport]) -> list[str]:
    """Remarks on an epoch besides its table, a line each."""
    lines = []
    repaired = [r for r in reports if r.is_repair]
    if repaired:
        epochs = ", ".join(sorted({str(r.epoch) for r in repaired}))
        lines.append(
            f"(repaired): a run that ended early had committed epoch {epochs} of {len(repaired)} view(s); published first"
        )
    lines += [
        f"{r.view} was left behind{f' at epoch {r.epoch}' if r.epoch else ''}: {r.problem}"
        for r in reports
        if r.problem is not None
    ]
    lines += dict.fromkeys(line for report in reports for line in report.remarks)
    return [*lines, *recomputed(reports), *advised(reports)]


def recomputed(reports: Iterable[ViewReport]) -> list[str]:
    """A line for each view that was not computed incrementally, with the reason."""
    return [f"{r.view}: {r.strategy}, {r.reason}" for r in reports if r.reason and not r.skipped]


def advised(reports: Iterable[ViewReport]) -> list[str]:
    """A line for each thing that would make epochs of a view cheaper."""
    return [f"{report.view}: {line}" for report in reports for line in report.advice]


def verify_table(reports: Sequence[VerifyReport], width: int) -> Table:
    """One line a view: equality with its full recompute, differing rows, compared keys."""
    is_sampled = any(r.sampled_keys is not None for r in reports)
    columns = [
        Shown("view"),
        Shown("epoch", 1, is_number=True),
        Shown("equals its query", is_number=True),
        Shown("missing", is_number=True),
        Shown("unexpected", is_number=True),
        *([Shown("keys", is_number=True)] if is_sampled else []),
        Shown("seconds", 2, is_number=True),
    ]
    rows = [
        [
            r.view,
            str(r.epoch or ""),
            "[green]yes[/]" if r.equal else "[red]NO[/]" if r.is_error else "[yellow]state.ttl[/]",
            *(["", ""] if r.problem else [str(r.missing_rows), str(r.unexpected_rows)]),
            *([f"{r.sampled_keys:,}" if r.sampled_keys is not None else "all"] if is_sampled else []),
            f"{r.seconds:.2f}",
        ]
        for r in reports
    ]
    return fitted(columns, rows, width)


def check_table(reports: Sequence[CheckReport], width: int) -> Table:
    """One line a check: whether it passed, and what was found."""
    columns = [
        Shown("view"),
        Shown("check"),
        Shown("is", 3),
        Shown("result"),
        Shown("found"),
        Shown("epoch", 2, is_number=True),
        Shown("seconds", 4, is_number=True),
    ]
    rows = [
        [
            r.view,
            r.check.name,
            escape(r.check.described),
            "[green]passed[/]" if r.passed else "[red]FAILED[/]" if r.is_error else "[yellow]warning[/]",
            "see below" if r.problem is not None else escape(r.found),
            str(r.epoch or ""),
            f"{r.seconds:.2f}",
        ]
        for r in reports
    ]
    return fitted(columns, rows, width)


def rows_table(shown: ShownRows) -> Table:
    """Unchanged rows, with NULL distinct from texts."""
    table = Table(*map(escape, shown.columns), header_style="bold")
    for row in shown.rows:
        table.add_row(*row_cells(row))
    return table


def row_cells(row: Cells) -> list[str]:
    """The values of a row as a table shows them."""
    return ["[dim]NULL[/]" if cell is None else escape(cell) for cell in row]
