"""Published tables with a name in Spark's catalog ('publish.table')."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import Warehouse
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.state_lib.errors import DeclarationError
from tests.epoch.test_catalog_tables import Shop

_SUMS = "SELECT person, sum(amount) AS amount FROM shop.orders GROUP BY person"


def _view(query: str = _SUMS, *, name: str = "spent", table: str | None = "shop.spent") -> str:
    properties = "" if table is None else f"TBLPROPERTIES ('publish.table' = '{table}') "
    return f"CREATE MATERIALIZED VIEW {name} (person COMMENT 'who', amount) COMMENT 'money' {properties}AS {query};"


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    yield Shop(spark.newSession(), tmp_path)
    spark.sql("DROP DATABASE IF EXISTS shop CASCADE")


def _rows(shop: Shop, table: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row)[:2] for row in shop.spark.sql(f"SELECT person, amount FROM {table}").collect())


def test_a_view_has_its_name_from_its_first_epoch_until_it_is_dropped(shop: Shop) -> None:
    shop.write(_view(table="Shop.`money_spent`"))
    shop.run()
    name = "shop.money_spent"
    assert _rows(shop, name) == [(1, 30), (2, 60)]
    shop.sql("INSERT INTO shop.orders VALUES (4, 3, 1)")
    shop.run()
    assert _rows(shop, name) == [(1, 30), (2, 60), (3, 1)]
    described = {row["col_name"]: row for row in shop.spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()}
    assert described["person"]["comment"] == "who"
    assert described["Comment"]["data_type"] == "money"
    # Dropping the table from the catalog deletes no row. The next change registers it again.
    shop.sql(f"DROP TABLE {name}", "DELETE FROM shop.orders WHERE person = 2")
    shop.run()
    assert _rows(shop, name) == [(1, 30), (3, 1)]
    Registry(shop.spark, shop.warehouse).drop("spent", "view")
    assert not shop.spark.catalog.tableExists(name)
    assert shop.spark.catalog.tableExists("shop.orders")


def test_a_warehouse_in_an_odd_folder(shop: Shop) -> None:
    shop.warehouse = Warehouse(shop.folder / "größe 100% of 'it'")
    shop.write(_view())
    shop.run()
    assert _rows(shop, "shop.spent") == [(1, 30), (2, 60)]
    Registry(shop.spark, shop.warehouse).drop("spent", "view")
    assert not shop.spark.catalog.tableExists("shop.spent")


def test_a_view_that_is_built_gets_its_name_at_once_and_an_edited_one_keeps_it(shop: Shop) -> None:
    shop.write(_view(table=None))
    shop.run()
    generation = shop.warehouse.read().views["spent"].generation
    shop.write(_view(table="shop.spent"))
    shop.run()
    assert shop.warehouse.read().views["spent"].generation == generation
    assert _rows(shop, "shop.spent") == [(1, 30), (2, 60)]
    shop.write(_view(_SUMS.replace("sum", "max"), table="spark_catalog.shop.spent"))
    shop.run()
    assert _rows(shop, "shop.spent") == [(1, 20), (2, 30)]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("shop.orders", "'publish.table' is shop.orders, which Spark's catalog has for another table or view"),
        ("shop.young", "shop.young, which Spark's catalog has for another table or view"),
        ("nowhere.spent", "nowhere.spent, and Spark's catalog has no such database; create it first"),
        ("shop.`money spent`", "shop.money spent; in Spark's own catalog, names have letters, digits and _ alone"),
        ("spent", "'publish.table' = 'spent' has no database; write database.table"),
        ("a.b.c.d", "'publish.table' = 'a.b.c.d' is no name of a table"),
        ("", "'publish.table' = '' is no name of a table"),
        ("shop.", "'publish.table' = 'shop.' is no name of a table"),
    ],
)
def test_a_name_that_cannot_be_had_is_refused_before_anything_is_written(shop: Shop, table: str, problem: str) -> None:
    shop.sql("CREATE VIEW shop.young AS SELECT 1 AS id")
    shop.write(_view(table=table))
    with pytest.raises(DeclarationError, match=re.escape(problem)):
        shop.run()
    assert not shop.warehouse.read().views
    assert shop.spark.table("shop.orders").count() == 4
    # So it is of a view that is built.
    shop.write(_view(table=None))
    shop.run()
    shop.write(_view(table=table))
    with pytest.raises(DeclarationError, match=re.escape(problem)):
        shop.run()
    assert "publish.table" not in shop.warehouse.read().views["spent"].properties


def test_two_views_cannot_have_one_name(shop: Shop) -> None:
    shop.write(_view(table="shop.spent") + _view(name="other", table="SHOP.spent"))
    with pytest.raises(
        DeclarationError, match=r"'publish.table' is shop.spent, and so is that of view (other|spent); choose another"
    ):
        shop.run()
    assert not shop.warehouse.read().views


def test_a_table_that_took_the_name_is_neither_changed_nor_dropped_with_the_view(shop: Shop) -> None:
    shop.write(_view(table="shop.spent"))
    shop.run()
    shop.sql("DROP TABLE shop.spent", "CREATE TABLE shop.spent (person INT, amount INT) USING delta")
    shop.sql("INSERT INTO shop.orders VALUES (4, 3, 1)")
    shop.run()
    Registry(shop.spark, shop.warehouse).drop("spent", "view")
    assert _rows(shop, "shop.spent") == []
