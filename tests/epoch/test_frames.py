"""Views that are Python functions of DataFrames: built, updated, verified, edited."""

from __future__ import annotations

import os
import re
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.jobs.api import EpochRunner, Warehouse, sync_project
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.state_lib.errors import RelstateError
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


def test_functions_and_sql_read_each_other(shop):
    shop.write("sources.sql", "CREATE TABLE orders (id INT, day DATE, cents BIGINT, PRIMARY KEY (id));")
    shop.write("days.sql", "CREATE VIEW paid AS SELECT * FROM orders WHERE cents > 0;")
    shop.write("top.sql", "CREATE MATERIALIZED VIEW top AS SELECT day FROM revenue WHERE cents > 100;")
    shop.python(
        """
        def table(spark):
            return spark.table("paid")

        @materialized_view(cluster_by=["day"], properties={"check.few.expect": "orders < 10"})
        def revenue(spark):
            return table(spark).groupBy("day").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))

        @materialized_view
        def above(spark):
            from pyspark.sql import Window
            ranked = F.row_number().over(Window.orderBy(F.desc("cents")))
            return spark.table("revenue").join(spark.sql("SELECT day FROM top"), "day").withColumn("rank", ranked)
        """
    )
    project = load_project(shop.project)
    assert {name: set(reads) for name, reads in project.reads.items()} == {
        "paid": {"orders"},
        "revenue": {"paid"},
        "top": {"revenue"},
        "above": {"revenue", "top"},
    }
    assert [view.name for view in project.views] == ["revenue", "top", "above"]
    shop.run()
    for change in (
        "INSERT INTO orders VALUES (1, DATE'2026-01-01', 100), (2, DATE'2026-01-01', 50), (3, DATE'2026-01-02', 700)",
        "UPDATE orders SET cents = 0 WHERE id = 2; INSERT INTO orders VALUES (4, DATE'2026-01-03', 101)",
    ):
        shop.sql(change)
        assert {report.strategy for report in shop.run().values()} <= {"incremental", "backfill"}
        shop.verify()
    assert [row[3] for row in sorted(shop.rows("above"), key=str)] == [1, 2]
    assert shop.warehouse.read().views["revenue"].inlined == {"paid": "SELECT * FROM orders WHERE cents > 0"}


def test_what_only_running_tells_is_found_when_the_view_is_planned(shop):
    shop.python(
        """
        TABLES = ["or" + "ders"]

        @materialized_view
        def a_last(spark):
            return spark.table("_".join(["b", "first"])).select("day")

        for name in TABLES:
            @materialized_view(name="b_first", comment="made in a loop")
            def b_first(spark, name=name):
                return spark.table(name).groupBy("day").count()
        """
    )
    project = load_project(shop.project)
    assert project.view("b_first").comment == "made in a loop"
    assert project.reads == {"a_last": (), "b_first": ()}
    shop.sql("CREATE TABLE unread (a INT)")
    shop.run()
    views = shop.warehouse.read().views
    assert {name: view.reads for name, view in views.items()} == {"a_last": ("b_first",), "b_first": ("orders",)}
    known = load_project(shop.project, warehouse=shop.warehouse.root)
    assert known.reads == {"a_last": ("b_first",), "b_first": ("orders",)}
    assert [view.name for view in known.views] == ["b_first", "a_last"]
    shop.verify()


def test_an_edit_within_a_second_is_run(shop):
    text = """
    @materialized_view
    def revenue(spark):
        return spark.table("orders").groupBy("day").agg(F.sum("cents").alias("cents"))
    """
    shop.python(text)
    shop.run()
    file = shop.project / "views.py"
    before, written = shop.warehouse.read().views["revenue"].generation, file.stat()
    shop.python(text.replace("F.sum(", "F.max("))
    os.utime(file, (written.st_atime, written.st_mtime))
    shop.run()
    assert shop.warehouse.read().views["revenue"].generation != before
    shop.verify()


def test_an_edit_that_leaves_the_plan_rebuilds_nothing(shop):
    text = """
    def total(column):
        return F.sum(column).alias("cents")

    @materialized_view
    def revenue(spark):
        return spark.table("orders").groupBy("day").agg(total("cents"))

    @materialized_view
    def count(spark):
        return spark.table("orders").groupBy().count()
    """
    shop.python(text)
    shop.run()
    shop.sql("INSERT INTO orders VALUES (1, DATE'2026-01-01', 100), (2, DATE'2026-01-01', 50)")
    shop.run()
    generations = {name: view.generation for name, view in shop.warehouse.read().views.items()}
    shop.python(text.replace("def total", "# a comment\n    def total").replace('groupBy("day")', 'groupBy(  "day"  )'))
    shop.verify()
    same = text.replace('spark.table("orders").groupBy("day")', 'spark.sql("SELECT * FROM orders").groupBy("day")')
    shop.python(same)
    (report,) = EpochRunner(shop.spark, shop.warehouse).verify(["revenue"])
    assert "was edited since the view was planned" in str(report.problem)
    shop.run()
    assert {name: view.generation for name, view in shop.warehouse.read().views.items()} == generations
    shop.verify()
    shop.python(same.replace("F.sum(", "F.max("))
    shop.run()
    assert {n for n, v in shop.warehouse.read().views.items() if v.generation != generations[n]} == {"revenue"}
    assert [row[1:] for row in shop.rows("revenue")] == [(100,)]
    shop.verify()


def test_a_project_may_move_and_a_file_may_go(shop):
    shop.python(REVENUE)
    shop.run()
    shop.project = shop.project.rename(shop.folder / "moved")
    (report,) = EpochRunner(shop.spark, shop.warehouse).verify()
    assert "the file was moved or deleted" in str(report.problem)
    shop.run()
    shop.verify()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return spark.table('nowhere')", r"table nowhere is neither declared, nor in"),
        ("return spark.table('no' + 'where')", r"reads 'nowhere', which is no source or view"),
        ("return spark.table('orders').select('nothing')", r"Spark refuses function v in .*nothing"),
        ("raise ValueError('no luck')", r"fails: ValueError: no luck"),
        ("return 5", r"returns int; a view's function returns a DataFrame"),
        ("return spark.table('orders').count()", r"calls DataFrame.count: a view's function describes"),
        ("n = spark.table('orders').rdd", r"calls DataFrame.rdd"),
        ("spark.conf.set('spark.sql.ansi.enabled', 'false')", r"calls RuntimeConfig?.set"),
        ("return spark.table('orders').groupBy('day').pivot('id').count()", r"pivot\('id'\) without values"),
        ("return spark.table('orders').select(F.udf(lambda x: x)('id'))", r"calls <lambda>, a function of its own"),
        ("spark.sql('CREATE TABLE made (a INT)')", r"a view is a query over sources and views, and not"),
        ("spark.catalog.clearCache()", r"calls Catalog.clearCache"),
        ("return spark.table('orders').transpose()", r"calls DataFrame.transpose"),
        ("return spark.table('orders').mapInPandas(lambda rows: rows, 'id int')", r"calls <lambda>, a function of its own"),
        ("return spark.createDataFrame([(1,)], 'a int')", r"makes rows in Python"),
        ("return spark.read.text('/etc/hostname')", r"reads a table or files that are no source"),
        ("return spark.sql('SELECT * FROM csv.`/etc/hostname`')", r"reads a table or files that are no source|is read by path"),
        ("return spark.table('orders').select(F.current_user())", r"calls current_user: it tells who runs"),
        ("return spark.table('orders').select(F.input_file_name())", r"calls input_file_name: it reads where"),
        ("return spark.table('orders').sample(0.5)", r"sample\(\) gives other rows every time"),
        ("return spark.table('orders').select(F.rand())", r"non-deterministic|cannot be maintained"),
        ("return spark.table('orders').dropDuplicates(['day'])", r"dropDuplicates"),
        ("return spark.readStream.format('json').load('/x')", r"calls readStream.format: declare the files as a source"),
        ("return spark.table('v')", r"reads itself|'v', which is no source"),
    ],
)
def test_refused_functions_are_refused_by_name(shop, body, message):
    shop.python(f"@materialized_view\ndef v(spark):\n    {body}\n")
    with pytest.raises(RelstateError, match=message):
        shop.declare()
    assert not shop.warehouse.read().views


def test_the_page_of_the_docs_is_true(shop):
    page = (Path(__file__).parents[2] / "docs" / "dataframes.md").read_text(encoding="utf-8")
    code, _ = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    shop.write("views.py", code)
    shop.run()
    shop.sql("INSERT INTO orders VALUES (1, DATE'2026-01-01', 100), (2, DATE'2026-01-01', -5)")
    shop.run()
    shop.verify()
    assert [row[1:] for row in shop.rows("revenue")] == [(100,)]


def test_registered_functions_are_called_by_name(shop):
    shop.warehouse = Warehouse(shop.warehouse.root, "tests.epoch.view_functions:register")
    shop.write("sources.sql", "CREATE TABLE people (id INT, name STRING);")
    shop.python(
        """
        @materialized_view
        def initials(spark):
            return spark.table("people").groupBy(F.call_function("initial", "name").alias("i")).count()
        """
    )
    shop.run()
    assert shop.warehouse.read().views["initials"].functions == ("initial",)
    shop.sql("INSERT INTO people VALUES (1, 'ann'), (2, 'al'), (3, 'bob')")
    assert shop.run()["initials"].strategy == "incremental"
    assert shop.rows("initials") == [("A", 2), ("B", 1)]
    for report in EpochRunner(shop.spark, shop.warehouse).verify():
        assert report.equal, report.problem
