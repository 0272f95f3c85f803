"""Views that are Python functions of DataFrames: built, updated, verified, edited."""

from __future__ import annotations

from textwrap import dedent

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.declare import load_project
from tests.epoch.scripts import Script

HEAD = """
from pyspark.sql import functions as F
from relstate_dagster import materialized_view
"""
REVENUE = """
@materialized_view
def revenue(spark):
    "What each day brought."
    return spark.table("orders").groupBy("day").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))
"""


class Shop:
    """A project over one table of orders."""

    def __init__(self, spark, folder):
        self.spark, self.folder = spark, folder
        self.project, self.warehouse = folder / "project", Warehouse(folder / "warehouse")
        self.project.mkdir()
        self.write("sources.sql", "CREATE TABLE orders (id INT, day DATE, cents BIGINT, PRIMARY KEY (id));")

    def write(self, name, text):
        (self.project / name).write_text(dedent(text))

    def python(self, text, name="views.py"):
        self.write(name, HEAD + dedent(text))

    def declare(self):
        return sync_project(self.spark, self.warehouse, load_project(self.project))

    def run(self):
        self.declare()
        reports = list(EpochRunner(self.spark, self.warehouse).run())
        return {report.view: report for report in reports if not report.is_repair}

    def sql(self, text):
        return Script(self.spark, self.warehouse.root).run(text)

    def verify(self):
        for report in EpochRunner(self.spark, Warehouse(self.warehouse.root)).verify():
            assert report.equal, f"{report.view}: {report.problem} {report.missing} {report.unexpected}"

    def rows(self, view):
        path = self.warehouse.target(view).path
        names = [output.name for output in self.warehouse.read().views[view].plan.output]
        return sorted((tuple(row) for row in self.spark.read.format("delta").load(path).select(*names).collect()), key=str)


@pytest.fixture
def shop(spark, tmp_path):
    return Shop(spark, tmp_path)


def test_a_view_of_a_dataframe_is_built_updated_and_verified(shop):
    shop.python(REVENUE)
    shop.run()
    view = shop.warehouse.read().views["revenue"]
    assert (view.strategy, view.reads, view.comment) == ("incremental", ("orders",), "What each day brought.")
    shop.sql("INSERT INTO orders VALUES (1, DATE'2026-01-01', 100), (2, DATE'2026-01-01', 50), (3, DATE'2026-01-02', 7)")
    shop.run()
    shop.verify()
    shop.sql("UPDATE orders SET cents = 60 WHERE id = 2; DELETE FROM orders WHERE id = 3")
    report = shop.run()["revenue"]
    assert report.strategy == "incremental"
    assert [row[1:] for row in shop.rows("revenue")] == [(160, 2)]
    shop.verify()


def test_the_command_line_runs_a_project_of_dataframes(shop):
    shop.python(REVENUE)
    where = ["--project", str(shop.project), "--warehouse", shop.warehouse.root]
    for text in ("", "INSERT INTO orders VALUES (1, DATE'2026-01-01', 100)"):
        if text:
            shop.sql(text)
        done = CliRunner().invoke(app, ["run", *where, "--yes"], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
    assert [row[1:] for row in shop.rows("revenue")] == [(100, 1)]
    done = CliRunner().invoke(app, ["sql", "-e", "VERIFY", "--warehouse", shop.warehouse.root], env={"COLUMNS": "200"})
    assert "True" in done.output or "true" in done.output, done.output
