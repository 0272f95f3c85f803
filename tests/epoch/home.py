"""A project of some views, and a warehouse that is up to date with it."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Warehouse, idle_reports, sync_project
from relstate_dagster.jobs.declare import load_project
from tests.epoch.scripts import Script, copied, kept
from tests.lent_jvm import COMMAND_LINE

FILES = {
    "sources": "CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); CREATE TABLE other (k INT);",
    "plain": "CREATE VIEW p AS SELECT k, v + 1 AS v FROM t",
    "sums": "CREATE MATERIALIZED VIEW sums AS SELECT sum(v) AS s FROM p",
    "over": "CREATE MATERIALIZED VIEW over AS SELECT s FROM sums WHERE s > 1",
    "others": "CREATE MATERIALIZED VIEW others AS SELECT count(*) AS n FROM other",
}


class Home:
    """A project, and a warehouse that is up to date with it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.project = folder / "project"
        self.warehouse = Warehouse(folder / "warehouse")
        if self.project.exists() or copied("home", folder):
            return
        self.project.mkdir()
        for name, text in FILES.items():
            self.write(name, text)
        self.bring()
        Script(spark, folder / "warehouse").run("INSERT INTO t VALUES (1, 1), (2, 2)")
        self.bring()
        kept("home", folder)

    def write(self, name: str, text: str) -> None:
        (self.project / f"{name}.sql").write_text(text)

    def bring(self) -> None:
        sync_project(self.spark, self.warehouse, load_project(self.project))
        list(EpochRunner(self.spark, self.warehouse).run())

    def command(self, *arguments: str, may_borrow: bool = False) -> list[str]:
        """Arguments of a process that runs a command, perhaps in the suite's JVM."""
        start = COMMAND_LINE if may_borrow else "from relstate_dagster.cli import console_script; console_script()"
        where = ["--project", str(self.project), "--warehouse", self.warehouse.root]
        return [sys.executable, "-c", start, *arguments, *where]

    def sql(self, text: str) -> None:
        Script(self.spark, self.warehouse.root).run(text)

    def is_idle(self, *views: str) -> bool:
        project = load_project(self.project)
        # Read anew, as by another process.
        found = idle_reports(Warehouse(self.warehouse.root), project, views or [view.name for view in project.views])
        return found is not None
