"""Tables that several verbs print."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from jobs.epoch.reports import VerifyReport, ViewReport


def changes_in(report: ViewReport) -> str:
    """Rows in by relation, as ``flights +10 −2``."""
    return ", ".join(f"{name} +{plus:,} −{minus:,}" for name, (plus, minus) in report.rows_in.items() if plus or minus)


def epoch_table(reports: Iterable[ViewReport], full_seconds: dict[str, float] | None = None) -> Table:
    """One line a view: rows in and out, seconds, and what a full recompute took where that was measured."""
    table = Table(title_justify="left", header_style="bold")
    for name in ("view", "epoch", "rows in", "rows out", "seconds"):
        table.add_column(name, justify="left" if name in ("view", "rows in") else "right")
    if full_seconds is not None:
        table.add_column("full recompute", justify="right")
    for report in reports:
        out = "unchanged" if report.skipped else f"+{report.rows_inserted:,} −{report.rows_deleted:,}"
        rows_in = changes_in(report) or ("backfill" if report.rows_inserted and not report.rows_in else "")
        line = [report.view, str(report.epoch), rows_in, out, f"{sum(report.seconds.values()):.2f}"]
        if full_seconds is not None:
            line.append(f"{full_seconds[report.view]:.2f}" if report.view in full_seconds else "")
        table.add_row(*line)
    return table


def recomputed(reports: Iterable[ViewReport]) -> list[str]:
    """A line for each view that was not computed incrementally, with the reason."""
    return [f"{r.view}: {r.strategy}, {r.reason}" for r in reports if r.reason and not r.skipped]


def advised(reports: Iterable[ViewReport]) -> list[str]:
    """A line for each thing that would make epochs of a view cheaper."""
    return [f"{report.view}: {line}" for report in reports for line in report.advice]


def verify_table(reports: Iterable[VerifyReport]) -> Table:
    """One line a view: equal to its full recompute or not, and by how many rows."""
    table = Table(header_style="bold")
    for name in ("view", "epoch", "equals its query run in full", "missing", "unexpected", "seconds"):
        table.add_column(name, justify="left" if name in ("view",) else "right")
    for r in reports:
        verdict = "[green]yes[/]" if r.equal else "[red]NO[/]"
        table.add_row(r.view, str(r.epoch), verdict, str(r.missing_rows), str(r.unexpected_rows), f"{r.seconds:.2f}")
    return table
