"""Sources that are tables of Spark's catalog, read by their names there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import Action, EpochRunner, Warehouse, idle_reports, preview_run, sync_project
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.state_lib.errors import DeclarationError, PlanError
from tests.epoch.scripts import Script

_FEED = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"


class Shop:
    """A database of Spark's catalog, a project over its tables, and a warehouse."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.warehouse = Warehouse(folder / "warehouse")
        self.sql(
            f"CREATE DATABASE shop LOCATION '{folder}/shop'",
            f"CREATE TABLE shop.orders (id INT, person INT, amount INT) USING delta {_FEED}",
            f"CREATE TABLE shop.all_people (id INT, name STRING) USING delta LOCATION '{folder}/lake/größe' {_FEED}",
            "INSERT INTO shop.orders VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30), (3, 2, 30)",
            "INSERT INTO shop.all_people VALUES (1, 'a'), (2, 'b')",
        )

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement)

    def write(self, text: str) -> None:
        (self.project / "views.sql").write_text(text)

    def run(self) -> None:
        """Register the project, bring all views up to date, and compare them with their queries."""
        sync_project(self.spark, self.warehouse, load_project(self.project))
        runner = EpochRunner(self.spark, self.warehouse)
        list(runner.run())
        assert all(report.equal for report in runner.verify())

    def actions(self) -> dict[str, Action]:
        found = preview_run(Warehouse(self.warehouse.root), load_project(self.project), most_tasks=1)
        return {view.view: view.action for view in found}

    def is_idle(self) -> bool:
        project = load_project(self.project)
        return idle_reports(Warehouse(self.warehouse.root), project, [view.name for view in project.views]) is not None

    def rows(self, view: str) -> list[tuple[object, ...]]:
        path = self.warehouse.target(view).path
        return sorted(tuple(row)[:-1] for row in self.spark.read.format("delta").load(path).collect())


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    yield Shop(spark.newSession(), tmp_path)
    spark.sql("DROP DATABASE IF EXISTS shop CASCADE")


_VIEWS = """
CREATE TABLE people (PRIMARY KEY (id)) TBLPROPERTIES ('source.table' = 'shop.all_people');
CREATE MATERIALIZED VIEW spent AS SELECT orders.person, sum(orders.amount) AS amount FROM shop.orders GROUP BY orders.person;
CREATE MATERIALIZED VIEW named AS
  SELECT all_people.name, s.amount FROM spent s JOIN spark_catalog.shop.all_people ON all_people.id = s.person;
"""


def test_views_follow_tables_of_the_catalog(shop: Shop) -> None:
    shop.write(_VIEWS)
    assert set(shop.actions().values()) == {Action.BUILD}
    assert not shop.is_idle()
    shop.run()
    assert shop.rows("named") == [("a", 30), ("b", 60)]
    assert shop.is_idle()
    sources = shop.warehouse.read().sources
    assert {name: (entry.table, entry.primary_key) for name, entry in sources.items()} == {
        "people": ("shop.all_people", ("id",)),
        "shop__orders": ("`shop`.`orders`", ()),
    }
    shop.sql(
        "UPDATE shop.orders SET amount = amount + 1 WHERE id = 3",
        "INSERT INTO shop.orders VALUES (4, 3, 1)",
        "MERGE INTO shop.all_people p USING (SELECT 2 AS id, 'c' AS name UNION ALL SELECT 3, 'd') s ON p.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *",
    )
    assert set(shop.actions().values()) == {Action.FOLLOW}
    shop.run()
    assert shop.rows("named") == [("a", 30), ("c", 62), ("d", 1)]
    shop.sql("DELETE FROM shop.orders WHERE person = 1")
    shop.run()
    assert shop.rows("named") == [("c", 62), ("d", 1)]


def test_a_table_that_is_made_again_in_another_place_is_read_from_there(shop: Shop) -> None:
    shop.write(_VIEWS)
    shop.run()
    shop.sql(
        "DROP TABLE shop.orders",
        f"CREATE TABLE shop.orders (id INT, person INT, amount INT) USING delta LOCATION '{shop.folder}/elsewhere' {_FEED}",
        "INSERT INTO shop.orders VALUES (9, 2, 5)",
    )
    shop.run()
    assert shop.rows("named") == [("b", 5)]
    shop.sql("INSERT INTO shop.orders VALUES (10, 1, 7)")
    shop.run()
    assert shop.rows("named") == [("a", 7), ("b", 5)]


def test_strict_views_are_not_rebuilt_over_a_table_in_another_place(shop: Shop) -> None:
    shop.write(_VIEWS.replace("VIEW named AS", "VIEW named TBLPROPERTIES ('refresh.policy' = 'incremental, strict') AS"))
    shop.run()
    before = shop.warehouse.read()
    shop.sql(
        "DROP TABLE shop.all_people",
        f"CREATE TABLE shop.all_people (id INT, name STRING) USING delta LOCATION '{shop.folder}/elsewhere' {_FEED}",
    )
    with pytest.raises(PlanError, match="named"):
        shop.run()
    assert shop.warehouse.read() == before


@pytest.mark.parametrize(
    ("made", "read", "problem"),
    [
        ("", "shop.nothing", "Spark's catalog has no table `shop`.`nothing`"),
        ("", "nowhere.nothing", "Spark's catalog has no table `nowhere`.`nothing`"),
        ("CREATE TABLE shop.plain (k INT) USING parquet", "shop.plain", "is not a Delta table"),
        ("CREATE VIEW shop.shown AS SELECT 1 AS k", "shop.shown", "`shop`.`shown`"),
    ],
)
def test_what_is_no_delta_table_is_refused_before_anything_is_written(shop: Shop, made: str, read: str, problem: str) -> None:
    if made:
        shop.sql(made)
    shop.write(f"CREATE TABLE t (k INT); CREATE MATERIALIZED VIEW v AS SELECT * FROM {read}, t")
    with pytest.raises(DeclarationError, match=problem):
        shop.run()
    assert not shop.warehouse.read().sources


def test_a_script_reads_tables_of_the_catalog(shop: Shop, spark: SparkSession) -> None:
    script = Script(spark, shop.warehouse.root)
    script.run(
        "CREATE TABLE people (PRIMARY KEY (id)) TBLPROPERTIES ('source.table' = 'shop.all_people');"
        "CREATE VIEW p AS SELECT id, upper(name) AS name FROM shop.all_people;"
        "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT name, amount FROM p JOIN shop.orders o ON o.person = p.id;"
        "CREATE MATERIALIZED VIEW v AS SELECT name, amount FROM p JOIN shop.orders o ON o.person = p.id;"
        "CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM shop.orders"
    )
    shop.sql("DELETE FROM shop.orders WHERE id = 3", "UPDATE shop.all_people SET name = 'z'")
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT * FROM v") == [("Z", 10), ("Z", 20)]
    assert script.rows("SELECT * FROM w") == [(2,)]
    assert sorted(script.warehouse.read().sources) == ["people", "shop__orders"]
    script.run("DROP MATERIALIZED VIEW w; DROP MATERIALIZED VIEW v; DROP VIEW p; DROP TABLE people")
    assert shop.spark.table("shop.all_people").count() == 2
