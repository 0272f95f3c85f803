"""Projects of Spark Declarative Pipelines: built, updated, verified, refused by name."""

from __future__ import annotations

from textwrap import dedent

import pytest
from dagster import DagsterInstance
from typer.testing import CliRunner

from relstate_dagster import build_definitions
from relstate_dagster.cli import app
from relstate_dagster.jobs.api import EpochRunner
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.state_lib.errors import RelstateError
from tests.epoch.test_frames import Shop

SPEC = """
name: shop
storage: file:///nowhere
libraries:
  - glob:
      include: transformations/**
"""
HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
"""
SOURCES = """
CREATE TABLE orders (id INT, day DATE, cents BIGINT) TBLPROPERTIES ('delta.appendOnly' = 'true');
CREATE TABLE returns (id INT, cents BIGINT, day DATE) TBLPROPERTIES ('delta.appendOnly' = 'true');
CREATE TABLE events (id INT, name STRING, op STRING, seq INT) TBLPROPERTIES ('delta.appendOnly' = 'true');
"""


class Pipeline(Shop):
    """A pipeline over tables that its file of sources declares."""

    def __init__(self, spark, folder):
        super().__init__(spark, folder)
        (self.project / "sources.sql").unlink()
        (self.project / "transformations").mkdir()
        self.write("spark-pipeline.yml", SPEC)
        self.write("relstate.sql", SOURCES)

    def python(self, text, name="views.py", head=HEAD):
        self.write(f"transformations/{name}", head + dedent(text))

    def sql_file(self, text, name="views.sql"):
        self.write(f"transformations/{name}", text)


@pytest.fixture
def pipeline(spark, tmp_path):
    return Pipeline(spark, tmp_path)


def test_the_project_that_spark_makes_runs_unchanged(spark, tmp_path, monkeypatch):
    init_cli = pytest.importorskip("pyspark.pipelines.init_cli")
    monkeypatch.chdir(tmp_path)
    init_cli.init("first")
    where = ["--project", "first", "--warehouse", str(tmp_path / "warehouse")]
    done = CliRunner().invoke(app, ["run", *where], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    shop = Shop.__new__(Shop)
    shop.spark, shop.project = spark, tmp_path / "first"
    from relstate_dagster.jobs.api import Warehouse

    shop.warehouse = Warehouse(tmp_path / "warehouse")
    assert shop.rows("example_sql_materialized_view") == [(0,), (2,), (4,), (6,), (8,)]
    shop.verify()


def test_sql_and_python_files_are_maintained_together(pipeline):
    pipeline.python(
        """
        @dp.temporary_view
        def paid() -> DataFrame:
            return spark.table("orders").where("cents > 0")

        @dp.materialized_view(comment="By day.", cluster_by=["day"], table_properties={"pipelines.reset.allowed": "true"})
        @dp.expect("few", "orders < 100")
        @dp.expect_or_fail("some", "orders > 0")
        def revenue():
            return spark.table("paid").groupBy("day").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))

        @dp.materialized_view(name="typed", schema="day DATE, cents DECIMAL(20, 2)")
        def any_name():
            return spark.read.table("revenue").select("cents", "day")
        """
    )
    pipeline.sql_file(
        "CREATE TEMPORARY VIEW large AS SELECT * FROM revenue WHERE cents > 100;"
        "CREATE MATERIALIZED VIEW top COMMENT 'x' AS SELECT day FROM large;"
    )
    project = load_project(pipeline.project)
    assert any("pipelines.reset.allowed" in remark for remark in project.remarks)
    assert project.view("revenue").comment == "By day."
    pipeline.run()
    for change in (
        "INSERT INTO orders VALUES (1, DATE'2026-01-01', 100), (2, DATE'2026-01-01', 50), (3, DATE'2026-01-02', 0)",
        "INSERT INTO orders VALUES (4, DATE'2026-01-02', 101)",
    ):
        pipeline.sql(change)
        assert {report.strategy for report in pipeline.run().values()} <= {"incremental", "backfill"}
        pipeline.verify()
    assert len(pipeline.rows("top")) == 2
    assert [str(row[1]) for row in pipeline.rows("typed")] == ["150.00", "101.00"]
    checks = {
        report.check.name: (report.passed, report.check.severity)
        for report in EpochRunner(pipeline.spark, pipeline.warehouse).check()
    }
    assert {name: checks[name] for name in ("few", "some")} == {"few": (True, "warn"), "some": (True, "error")}


def test_append_flows_are_views_over_appended_rows(pipeline):
    pipeline.python(
        """
        @dp.table
        def paid():
            return spark.readStream.option("skipChangeCommits", "true").table("orders").where("cents > 0")

        dp.create_streaming_table("both", comment="Orders and returns.")

        @dp.append_flow(target="both")
        def from_orders():
            return spark.readStream.table("paid")

        @dp.append_flow(target="both", name="second")
        def from_returns():
            return spark.readStream.table("returns").withColumn("cents", -F.col("cents"))
        """
    )
    pipeline.sql_file(
        "CREATE STREAMING TABLE large AS SELECT id FROM STREAM(both) WHERE cents > 60;"
        "CREATE STREAMING TABLE ids (id INT);"
        "CREATE FLOW a AS INSERT INTO ids BY NAME SELECT id FROM STREAM orders;"
        "CREATE FLOW b AS INSERT INTO ids BY NAME SELECT id FROM STREAM(returns);"
        "CREATE MATERIALIZED VIEW net AS SELECT day, sum(cents) AS cents FROM both GROUP BY day;"
    )
    pipeline.run()
    pipeline.sql("INSERT INTO orders VALUES (1, DATE'2026-01-01', 100), (2, DATE'2026-01-01', 50), (3, DATE'2026-01-02', 0)")
    pipeline.run()
    pipeline.verify()
    pipeline.sql("INSERT INTO returns VALUES (1, 20, DATE'2026-01-01')")
    assert pipeline.run()["net"].strategy == "incremental"
    pipeline.verify()
    assert [row[1:] for row in pipeline.rows("net")] == [(130,)]
    assert [row[0] for row in pipeline.rows("ids")] == [1, 1, 2, 3]
    assert pipeline.warehouse.read().views["both"].comment == "Orders and returns."


def test_an_auto_cdc_flow_keeps_the_newest_row_of_each_key(pipeline):
    pipeline.python(
        """
        @dp.temporary_view
        def changes():
            return spark.readStream.table("events")

        dp.create_streaming_table("names")
        dp.create_auto_cdc_flow(
            target="names",
            source="changes",
            keys=["id"],
            sequence_by=F.col("seq"),
            apply_as_deletes=F.expr("op = 'D'"),
            except_column_list=["op"],
            stored_as_scd_type="1",
        )
        """
    )
    pipeline.run()
    pipeline.sql("INSERT INTO events VALUES (1, 'a', 'I', 1), (2, 'b', 'I', 1), (1, 'c', 'U', 3)")
    pipeline.run()
    assert pipeline.rows("names") == [(1, "c", 3), (2, "b", 1)]
    pipeline.sql("INSERT INTO events VALUES (1, 'late', 'U', 2), (2, NULL, 'D', 2), (3, 'd', 'I', 1)")
    report = pipeline.run()["names"]
    assert report.strategy == "incremental"
    assert pipeline.rows("names") == [(1, "c", 3), (3, "d", 1)]
    pipeline.verify()


def test_dagster_runs_a_pipeline(pipeline):
    pipeline.python(
        """
        @dp.materialized_view
        @dp.expect("few", "n < 100")
        def days():
            return spark.table("orders").groupBy("day").agg(F.count("*").alias("n"))
        """
    )
    pipeline.sql_file("CREATE MATERIALIZED VIEW most AS SELECT max(n) AS n FROM days")
    pipeline.run()
    pipeline.sql("INSERT INTO orders VALUES (1, DATE'2026-01-01', 100), (2, DATE'2026-01-01', 50)")
    definitions = build_definitions(pipeline.project, warehouse=pipeline.warehouse.root)
    done = definitions.get_repository_def().get_job("refresh_views").execute_in_process(instance=DagsterInstance.ephemeral())
    assert done.success
    found = {event.asset_key.to_user_string() for event in done.get_asset_materialization_events()}
    assert {"days", "most"} <= found
    checks = {event.check_name for event in done.get_asset_check_evaluations()}
    assert "few" in checks
    assert pipeline.rows("most") == [(2,)]


def test_a_file_whose_text_does_not_tell_is_run(pipeline):
    pipeline.python(
        """
        for sign, name in (("<", "small"), (">=", "large")):
            @dp.materialized_view(name=name)
            def of_size(sign=sign):
                return dp_spark().table("orders").where(f"cents {sign} 60")

        def dp_spark():
            return SparkSession.active()

        dp.create_streaming_table(name="names")
        dp.create_auto_cdc_flow("names", "events", keys=["i" + "d"], sequence_by="seq", column_list=["id", "name"])
        """,
        head=HEAD.replace("spark = SparkSession.active()", ""),
    )
    pipeline.run()
    pipeline.sql("INSERT INTO orders VALUES (1, DATE'2026-01-01', 100), (2, DATE'2026-01-01', 50)")
    pipeline.sql("INSERT INTO events VALUES (1, 'a', 'I', 1), (1, 'b', 'I', 2)")
    pipeline.run()
    pipeline.verify()
    assert [len(pipeline.rows(view)) for view in ("small", "large")] == [1, 1]
    assert pipeline.rows("names") == [(1, "b")]


_TABLE = "@dp.table\ndef f():\n    return "


@pytest.mark.parametrize(
    ("python", "sql", "message"),
    [
        ("dp.create_sink('s', 'kafka')", "", r"sink s: rows are published to Delta tables only"),
        ("dp.create_streaming_table('t')", "", r"streaming table t has no flow"),
        ("@dp.append_flow(target='t')\ndef f():\n    return 1", "", r"a flow writes to t, which the pipeline does not define"),
        ("@dp.table\n@dp.expect_or_drop('a', 'b')\ndef f():\n    return 1", "", r"expect_or_drop is not taken"),
        ("@dp.table(spark_conf={'spark.sql.ansi.enabled': 'no'})\ndef f():\n    return 1", "", r"changes what queries mean"),
        (f"{_TABLE}spark.readStream.format('json').load('/x')", "", r"calls readStream.format: declare the files"),
        ("dp.create_auto_cdc_flow('t', 's', ['k'], 'o', stored_as_scd_type=2)", "", r"stored_as_scd_type = 2 is not taken"),
        ("", "CREATE TABLE x (a INT)", r"a pipeline defines materialized views.*not CREATE TABLE x"),
        ("", "SET spark.sql.ansi.enabled = false; CREATE MATERIALIZED VIEW v AS SELECT 1 AS a", r"changes what queries mean"),
        ("", "CREATE FLOW f AS AUTO CDC INTO t FROM x KEYS (a) SEQUENCE BY b", r"flow f: a flow is written as INSERT INTO"),
    ],
)
def test_refused_parts_are_refused_by_name(pipeline, python, sql, message):
    if python:
        pipeline.python(python)
    if sql:
        pipeline.sql_file(sql)
    with pytest.raises(RelstateError, match=message):
        pipeline.declare()


def test_the_file_of_a_pipeline_is_checked(pipeline):
    for text, message in (
        (f"{SPEC}\nlibrary: x", r"the field library is unknown"),
        (SPEC.replace("transformations/**", "transformations/*.py"), r"name a file, or a folder as folder/\*\*"),
        (f"{SPEC}\nconfiguration: {{spark.sql.ansi.enabled: 'false'}}", r"spark.sql.ansi.enabled = false changes"),
    ):
        pipeline.write("spark-pipeline.yml", text)
        with pytest.raises(RelstateError, match=message):
            load_project(pipeline.project)
    pipeline.write("spark-pipeline.yml", f"{SPEC}\ndatabase: mart\nconfiguration: {{spark.sql.shuffle.partitions: '4'}}")
    pipeline.python("@dp.materialized_view(name='mart.v')\ndef f():\n    return spark.range(3)")
    project = load_project(pipeline.project)
    assert [view.name for view in project.views] == ["v"]
    assert any("spark.sql.shuffle.partitions" in remark for remark in project.remarks)
    pipeline.python("@dp.materialized_view(name='other.v')\ndef f():\n    return spark.range(3)")
    with pytest.raises(RelstateError, match=r"other.v is in another database"):
        load_project(pipeline.project)
