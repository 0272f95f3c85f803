"""The table of all queries in ``docs/suites.md``, written from the report of a run."""

from __future__ import annotations

from pathlib import Path

from tests.suites.runner import QueryReport, Reports
from tests.suites.suite import query_number

_TITLES = {"tpch": "TPC-H", "tpcds": "TPC-DS"}


def write_table(path: Path, reports: Reports) -> None:
    """Write the Markdown page."""
    lines = [
        "# TPC-H and TPC-DS",
        "",
        "Every query of both suites as a materialized view, brought through a load and epochs of mixed inserts, updates and",
        "deletes over all base tables (`tests/suites/changes.py`), and compared after each epoch with the query run in full",
        "by Spark, as bags and both ways. The texts are those of Spark's own tests. `python -m tests.suites` runs it,",
        "`python -m tests.suites --table docs/suites.md` writes this page from its report. The cost of an epoch is the mean",
        "over those that change something: Spark jobs, their stages, and the files of its one commit (one for each state",
        "table that it writes). *Equal* and *changed* count epochs.",
    ]
    for suite, title in _TITLES.items():
        found = sorted(
            (r for r in reports.reports.values() if r.suite == suite), key=lambda r: (query_number(r.query), r.query)
        )
        if found:
            lines += ["", *_section(title, found)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _section(title: str, found: list[QueryReport]) -> list[str]:
    numbers = {query_number(r.query) for r in found}
    not_run = {query_number(r.query) for r in found if not r.epochs and not r.error}
    wrong = {query_number(r.query) for r in found if r.error}
    full = {query_number(r.query) for r in found if not r.incremental}
    lines = [
        f"## {title}",
        "",
        f"{len(numbers)} queries ({len(found)} texts): {len(numbers - full)} planned fully incrementally, "
        f"{len(numbers - wrong - not_run)} run and equal to Spark's result in every epoch, {len(wrong)} wrong, "
        f"{len(not_run - wrong)} not run in this report.",
        "",
        "| query | strategy | joins | aggregates | other | state tables | equal | changed | jobs, stages, files |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return [*lines, *(_row(r) for r in found)]


def _row(report: QueryReport) -> str:
    joins = ", ".join(f"{n} {k.removesuffix(' join')}" for k, n in report.nodes.items() if k.endswith(" join"))
    calls = ", ".join(f"{n} {k.removeprefix('call by ')}" for k, n in report.nodes.items() if k.startswith("call by "))
    aggregates = f"{report.nodes['aggregate']}" + (f" ({calls})" if calls else "") if "aggregate" in report.nodes else ""
    other = ", ".join(
        f"{n} {k}" for k, n in report.nodes.items() if not k.endswith(" join") and k != "aggregate" and "call by" not in k
    )
    strategy = "incremental" if report.incremental else f"full ({report.reason})"
    equal = sum(e.missing == e.unexpected == 0 for e in report.epochs)
    later = [e for e in report.epochs[1:] if e.jobs]
    # Reports of before stages and files were counted have none.
    counted = [(e.jobs, e.stages, e.files) if e.stages else (e.jobs,) for e in later]
    costs = ", ".join(f"{sum(part) / len(later):.0f}" for part in zip(*counted, strict=True))
    checked = f"**{equal}: {report.error}**" if report.error else f"{equal}" if report.epochs else "not run"
    return (
        f"| {report.query} | {strategy} | {joins} | {aggregates} | {other} | {report.state_tables} | {checked} | "
        f"{report.changed} | {costs} |"
    )
