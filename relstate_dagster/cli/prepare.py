"""``relstate prepare``: makes later starts faster, done once, as for a container image."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.filesize import decimal

from relstate_dagster.cli.app import app, console, output
from relstate_dagster.jobs.engine.class_archive import class_archive, has_profiles, writing_to
from relstate_dagster.jobs.engine.jars import delta_jars, jars_of
from relstate_dagster.jobs.engine.java import find_java
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake.storage import Store

try:
    import fcntl
except ImportError:  # pragma: no cover - no such lock on Windows: one prepare at a time, please
    fcntl = None  # type: ignore[assignment]

_FOLDER: Final = "prepare-"
#: The command line, in a process that ends when its standard input does.
_RELSTATE: Final = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
from relstate_dagster.cli import console_script
console_script()
"""
#: Uses what most runs use: backfill, an epoch of a join and an aggregate, of an extreme and a top-n, and what they publish.
_TRAINING: Final = """
CREATE TABLE t (k INT, g INT, v DECIMAL(10,2), d DATE, PRIMARY KEY (k));
CREATE TABLE n (g INT, name STRING, PRIMARY KEY (g));
INSERT INTO t SELECT id, id % 5, id, DATE '2026-01-01' FROM range(50);
INSERT INTO n VALUES (0, 'a'), (1, 'b'), (2, 'c');
CREATE MATERIALIZED VIEW sums AS
  SELECT name, count(*) AS n, sum(v) AS s, max(d) AS d FROM t LEFT JOIN n USING (g) WHERE v > 1 GROUP BY name;
CREATE MATERIALIZED VIEW first_rows AS SELECT * FROM sums ORDER BY s DESC LIMIT 2;
REFRESH;
INSERT INTO t VALUES (100, 2, 5.5, DATE '2026-01-02');
DELETE FROM t WHERE k = 3;
REFRESH;
INSERT INTO t VALUES (101, 1, 5.5, DATE '2026-01-03');
REFRESH;
"""


@app.command()
def prepare(
    s3: Annotated[bool, typer.Option("--s3", help="Fetch what Spark needs for S3 as well (13 MB).")] = False,
    azure: Annotated[bool, typer.Option("--azure", help="Fetch what Spark needs for Azure Storage as well (1 MB).")] = False,
    gcs: Annotated[bool, typer.Option("--gcs", help="Fetch what Spark needs for Google's storage as well (41 MB).")] = False,
) -> None:
    """Fetch Delta's jars and record Java's loaded classes, for faster starts.

    Starting Spark and a first epoch then take three tenths less.
    """
    java = find_java()
    with console.status("fetching jars"):
        delta_jars()
        wanted: dict[Store, bool] = {"s3": s3, "azure": azure, "gcs": gcs}
        for store in [store for store, is_wanted in wanted.items() if is_wanted]:
            jars_of(store)
    archive = class_archive(java)
    with _folder_beside(archive) as folder, console.status("running views to learn Spark's classes"):
        written = folder / archive.name
        command = [sys.executable, "-c", _RELSTATE, "sql", "--warehouse", f"{folder}/warehouse", "-e", _TRAINING]
        with writing_to(written), _ends_with_this_process() as stdin:
            # Its JVM outlives it, writing, and has another one write the cache; the pipes are closed when all have ended.
            done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise EnvironmentProblem(f"views could not be run to learn Spark's classes: {(done.stderr or done.stdout).strip()}")
        # The JVM that records removes its record when the other one has written all of the cache.
        if not written.is_file() or written.with_name(f"{written.name}.config").exists():
            raise EnvironmentProblem(
                f"Java at {java.home} wrote no archive of classes (one that is cut down cannot); everything works without it"
            )
        written.replace(archive)
    what = "classes and profiles of their methods" if has_profiles(java) else "classes"
    output.print(f"archived {decimal(archive.stat().st_size)} of {what} in {archive}", highlight=False, soft_wrap=True)


@contextmanager
def _ends_with_this_process() -> Iterator[int]:
    """Give a standard input that ends when this process does, however it does."""
    reads, writes = os.pipe()
    try:
        yield reads
    finally:
        os.close(writes)
        os.close(reads)


@contextmanager
def _folder_beside(archive: Path) -> Iterator[Path]:
    """Make a folder for one run at a time.

    That of a killed one, hundreds of megabytes, is removed.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (archive.parent / "prepare.lock").open("a") as lock:
        if fcntl is not None:
            with console.status("waiting for another relstate prepare"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_folders(archive.parent)
        try:
            # A new name each time: the JVM of a run that was killed may still be writing to its folder.
            yield Path(tempfile.mkdtemp(prefix=_FOLDER, dir=archive.parent))
        finally:
            # Such a JVM may have made its folder again meanwhile.
            _remove_folders(archive.parent)


def _remove_folders(place: Path) -> None:
    for folder in place.glob(f"{_FOLDER}*"):
        shutil.rmtree(folder, ignore_errors=True)
