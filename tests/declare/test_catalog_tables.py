"""Queries over tables of Spark's catalog, read by their names there; without Spark."""

from __future__ import annotations

import pytest

from relstate_dagster.jobs.declare import parse_text
from relstate_dagster.jobs.declare.project import Project, build_project
from relstate_dagster.state_lib.errors import DeclarationError

_ORDERS = "CREATE TABLE orders (PRIMARY KEY (id)) TBLPROPERTIES ('source.table' = 'Sales.Orders');"
_BILLS = "CREATE TABLE bills TBLPROPERTIES ('source.table' = '`sales`.`orders`');"


def _project(text: str) -> Project:
    return build_project(parse_text(text))


def _read(query: str, declared: str = "") -> tuple[str, tuple[str, ...]]:
    """The rewritten query of a view, and the sources that it reads."""
    (view,) = _project(f"{declared} CREATE MATERIALIZED VIEW v AS {query}").views
    return view.query, _project(f"{declared} CREATE MATERIALIZED VIEW v AS {query}").reads["v"]


@pytest.mark.parametrize(
    ("query", "taken", "reads"),
    [
        # Declared, by its own name, so that columns can be qualified by it.
        ("SELECT orders.id FROM sales.orders", "SELECT orders.id FROM `orders`", ("orders",)),
        ("SELECT o.id FROM spark_catalog.SALES.`Orders` AS o", "SELECT o.id FROM `orders` AS o", ("orders",)),
        ("SELECT 1 FROM orders, sales . orders", "SELECT 1 FROM orders, `orders`", ("orders",)),
        # Not declared.
        (
            "SELECT items.id FROM sales.items WHERE id IN (SELECT k FROM sales.items)",
            "WITH `items` AS (SELECT * FROM `sales__items`)\nSELECT items.id FROM `items` WHERE id IN (SELECT k FROM `items`)",
            ("sales__items",),
        ),
        (
            "SELECT * FROM lake.sales.orders",
            "WITH `orders` AS (SELECT * FROM `lake__sales__orders`)\nSELECT * FROM `orders`",
            ("lake__sales__orders",),
        ),
        # Two tables, a common table expression, or another source, of the same last name.
        (
            "SELECT 1 FROM a.items JOIN b.items AS i",
            "WITH `items` AS (SELECT * FROM `a__items`), `__table__b__items` AS (SELECT * FROM `b__items`)\n"
            "SELECT 1 FROM `items` JOIN `__table__b__items` AS i",
            ("a__items", "b__items"),
        ),
        (
            "WITH x AS (SELECT 1 AS a), items AS (SELECT 2 AS b) SELECT * FROM items, a.items",
            "WITH `__table__a__items` AS (SELECT * FROM `a__items`),\n"
            "x AS (SELECT 1 AS a), items AS (SELECT 2 AS b) SELECT * FROM items, `__table__a__items`",
            ("a__items",),
        ),
        (
            "WITH orders AS (SELECT * FROM sales.orders) SELECT * FROM orders JOIN (SELECT 1 FROM sales.orders)",
            "WITH `__table__orders` AS (SELECT * FROM `orders`),\n"
            "orders AS (SELECT * FROM `orders`) SELECT * FROM orders JOIN (SELECT 1 FROM `__table__orders`)",
            ("orders",),
        ),
        (
            "SELECT * FROM items, a.items",
            "WITH `__table__a__items` AS (SELECT * FROM `a__items`)\nSELECT * FROM items, `__table__a__items`",
            ("a__items", "items"),
        ),
        # Names with other letters.
        (
            "SELECT * FROM crm.`all people`",
            "WITH `all people` AS (SELECT * FROM `crm__all_people`)\nSELECT * FROM `all people`",
            ("crm__all_people",),
        ),
        # No table: a text, a field of a struct, a comment.
        ("SELECT 'FROM a.b', s.x FROM t /* FROM a.b */ s", "SELECT 'FROM a.b', s.x FROM t /* FROM a.b */ s", ("t",)),
    ],
)
def test_a_query_reads_sources(query: str, taken: str, reads: tuple[str, ...]) -> None:
    found, read = _read(query, _ORDERS)
    assert found == taken
    assert sorted(read) == sorted(reads)


def test_a_table_is_one_source_in_all_views() -> None:
    project = _project(
        "CREATE VIEW p AS SELECT * FROM sales.items; CREATE MATERIALIZED VIEW v AS SELECT * FROM SALES.Items JOIN p;"
        "CREATE TABLE c (k INT, at INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert', 'source.order' = 'at', "
        "'source.table' = 'raw.changes'); CREATE MATERIALIZED VIEW w AS SELECT * FROM raw.changes"
    )
    assert {source.name: source.table for source in project.sources} == {
        "c_changelog": "`raw`.`changes`",
        "sales__items": "`sales`.`items`",
    }
    assert project.reads["w"] == ("c_changelog",)
    assert project.upstream("v") == ("sales__items",)
    assert project.undeclared == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("CREATE TABLE o TBLPROPERTIES ('source.table' = 'a..b')", r"'a\.\.b' is no name of a table"),
        ("CREATE TABLE o TBLPROPERTIES ('source.table' = '')", "is no name of a table"),
        ("CREATE TABLE o TBLPROPERTIES ('source.table' = 'a.b.c.d')", "is no name of a table"),
        ("CREATE TABLE o TBLPROPERTIES ('source.table' = 'a b')", "is no name of a table"),
        ("CREATE TABLE o LOCATION '/x' TBLPROPERTIES ('source.table' = 'a.b')", "leave LOCATION"),
        ("CREATE TABLE o (k INT) USING csv LOCATION '/x' TBLPROPERTIES ('source.table' = 'a.b')", "leave LOCATION"),
        (f"{_ORDERS} {_BILLS}", "is declared as orders already"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM delta.`/a/b`", "read by path"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM global_temp.x", "read by path"),
        ("CREATE TABLE a__b (k INT); CREATE MATERIALIZED VIEW v AS SELECT * FROM a.b", "'a__b' is the name of the source"),
        ("CREATE MATERIALIZED VIEW a__b AS SELECT k FROM a.b", "'a__b' is the name of the source"),
    ],
)
def test_what_is_no_table_of_a_catalog(text: str, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        _project(text)
