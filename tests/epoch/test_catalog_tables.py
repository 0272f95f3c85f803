"""Sources that are tables of Spark's catalog, read by their names there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import Action, EpochRunner, Warehouse, idle_reports, preview_run, sync_project
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.declare.view_tests import load_view_tests
from relstate_dagster.jobs.view_tests import ViewTestRunner
from relstate_dagster.state_lib.errors import DeclarationError, PlanError
from tests.dbt_projects import DbtProject
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
        "people": ("`shop`.`all_people`", ("id",)),
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


def test_another_spelling_or_place_of_the_same_table_rebuilds_nothing(shop: Shop) -> None:
    strict = _VIEWS.replace("VIEW spent AS", "VIEW spent TBLPROPERTIES ('refresh.policy' = 'incremental, strict') AS")
    views = strict.replace("FROM shop.orders", "FROM orders")

    def declare(how: str) -> None:
        shop.write(f"CREATE TABLE orders {how}; {views}")
        shop.run()

    declare("TBLPROPERTIES ('source.table' = 'shop.orders')")
    generation = shop.warehouse.read().views["spent"].generation
    path = shop.warehouse.read().sources["orders"].path
    for how in (
        "TBLPROPERTIES ('source.table' = 'spark_catalog.SHOP.`Orders`')",
        f"LOCATION '{path}'",
        "TBLPROPERTIES ('source.table' = 'shop.orders')",
    ):
        declare(how)
        assert shop.warehouse.read().views["spent"].generation == generation
        assert shop.is_idle()


def test_a_dbt_source_is_found_in_the_warehouse_or_else_in_the_catalog(shop: Shop) -> None:
    project = DbtProject(shop.project)
    project.source("shop", "orders")
    project.source("shop", "all_people")
    compiled = (
        "select p.name, sum(o.amount) as amount from shop.orders o join shop.all_people p on p.id = o.person group by p.name"
    )
    project.node("spent", compiled, compiled)
    project.write()
    shop.sql(
        f"CREATE TABLE delta.`{shop.warehouse.root}/sources/shop__all_people` (id INT, name STRING) USING delta {_FEED}",
        f"INSERT INTO delta.`{shop.warehouse.root}/sources/shop__all_people` VALUES (1, 'of the warehouse')",
    )
    shop.run()
    assert shop.rows("spent") == [("of the warehouse", 30)]
    sources = shop.warehouse.read().sources
    assert {name: (entry.table, entry.managed) for name, entry in sources.items()} == {
        "shop__orders": ("`shop`.`orders`", False),
        "shop__all_people": (None, True),
    }
    shop.sql("DELETE FROM shop.orders WHERE id = 1")
    shop.run()
    assert shop.rows("spent") == [("of the warehouse", 20)]
    assert shop.is_idle()


def test_models_of_dbt_are_published_under_their_schema(shop: Shop) -> None:
    project = DbtProject(shop.project)
    project.source("shop", "orders")
    compiled = "select person, sum(amount) as amount from shop.orders group by person"
    config = {"meta": {"relstate": {"publish": True}}}
    project.node("spent", compiled, compiled, schema="shop", relation_name="`shop`.`spent`", config=config)
    read = "select max(amount) as amount from shop.spent"
    project.node("most", read, read, schema="shop", relation_name="`shop`.`most`", config=config)
    project.write()
    most = "SELECT max(amount) FROM (SELECT sum(amount) AS amount FROM shop.orders GROUP BY person)"
    for change in ("INSERT INTO shop.orders SELECT * FROM shop.orders", "DELETE FROM shop.orders WHERE id = 1"):
        shop.sql(change)
        shop.run()
        assert shop.spark.table("shop.most").select("amount").collect() == shop.spark.sql(most).collect()
    assert shop.spark.table("shop.spent").count() == len(shop.rows("spent"))


@pytest.mark.parametrize("declared", ["", "CREATE TABLE orders TBLPROPERTIES ('source.table' = 'shop.orders');"])
@pytest.mark.parametrize("lists_columns", [False, True])
def test_tests_of_views_read_given_rows_alone(shop: Shop, declared: str, lists_columns: bool) -> None:
    name = "orders" if declared else "shop__orders"
    if lists_columns:
        declared = declared.replace("TABLE orders", "TABLE orders (person INT, amount INT)")
    (shop.project / "views").mkdir()
    view = "CREATE MATERIALIZED VIEW spent AS SELECT person, sum(amount) AS amount FROM shop.orders GROUP BY person"
    (shop.project / "views" / "spent.sql").write_text(f"{declared} {view}")
    (shop.project / "views" / "spent.test.yaml").write_text(
        f"tests: [{{name: t, given: {{{name}: [{{person: 7, amount: 1}}]}}, expect: [{{person: 7, amount: 1}}]}}]"
    )
    project = load_project(shop.project)
    (report,) = ViewTestRunner(shop.spark, project, shop.warehouse).run(load_view_tests(shop.project, project))
    assert report.problem is None


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
    (explained,) = script.run("EXPLAIN CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM shop.orders")
    assert "Scan shop__orders" in explained.rows[0][0]
    assert not script.warehouse.read().sources
    script.run(
        "CREATE TABLE people (PRIMARY KEY (id)) TBLPROPERTIES ('source.table' = 'shop.all_people');"
        "CREATE VIEW p AS SELECT id, upper(name) AS name FROM shop.all_people;"
        "CREATE MATERIALIZED VIEW v AS SELECT name, amount FROM p JOIN shop.orders o ON o.person = p.id;"
        "CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM shop.orders"
    )
    assert sorted(script.warehouse.read().sources) == ["people", "shop__orders"]
    shop.sql("DELETE FROM shop.orders WHERE id = 3", "UPDATE shop.all_people SET name = 'z'")
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT * FROM v") == [("Z", 10), ("Z", 20)]
    assert script.rows("SELECT * FROM w") == [(2,)]
    assert sorted(script.warehouse.read().sources) == ["people", "shop__orders"]
    script.run("DROP MATERIALIZED VIEW w; DROP MATERIALIZED VIEW v; DROP VIEW p; DROP TABLE people")
    assert shop.spark.table("shop.all_people").count() == 2
