"""``relstate prepare``: what makes later starts faster, done once; for an image of a container, say."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.filesize import decimal

from relstate_dagster.cli.app import app, console, output
from relstate_dagster.jobs.spark.class_archive import class_archive, writing_to
from relstate_dagster.jobs.spark.jars import delta_jars, jars_of
from relstate_dagster.jobs.spark.java import find_java
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake.storage import Store

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
    """Fetch Delta's jars and archive Spark's classes: starting Spark and a first epoch then take three tenths less."""
    java = find_java()
    with console.status("fetching jars"):
        delta_jars()
        wanted: dict[Store, bool] = {"s3": s3, "azure": azure, "gcs": gcs}
        for store in [store for store, is_wanted in wanted.items() if is_wanted]:
            jars_of(store)
    archive = class_archive(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder, console.status("running views to learn Spark's classes"):
        written = Path(folder) / archive.name
        command = [sys.executable, "-c", "from relstate_dagster.cli import console_script; console_script()", "sql"]
        with writing_to(written):
            # Its JVM outlives it, writing; the pipes are closed when that has ended, too.
            done = subprocess.run(  # noqa: S603
                [*command, "--warehouse", f"{folder}/warehouse", "-e", _TRAINING], capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise EnvironmentProblem(f"views could not be run to learn Spark's classes: {(done.stderr or done.stdout).strip()}")
        if not written.is_file():
            raise EnvironmentProblem(
                f"Java at {java.home} wrote no archive of classes (one that is cut down cannot); everything works without it"
            )
        written.replace(archive)
    output.print(f"archived {decimal(archive.stat().st_size)} of classes in {archive}", highlight=False, soft_wrap=True)
