"""A dbt project is run by its manifest: built, updated, verified, checked."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.jobs.api import Warehouse
from tests.dbt_projects import DbtProject

_INCREMENTAL = """{{ config(materialized='incremental', unique_key='id') }}
select o.id, o.customer, c.country, {{ cents('o.cents') }} as euros
from {{ ref('stg_orders') }} as o left join {{ source('raw', 'customers') }} as c on o.customer = c.name
{% if is_incremental() %} where o.id > (select max(id) from {{ this }}) {% endif %}
"""


class Shop:
    """A project of three models over two Delta tables."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.warehouse = spark, folder, folder / "warehouse"
        self.sql("CREATE TABLE {orders} (id INT, customer STRING, cents BIGINT, status STRING) USING delta")
        self.sql("CREATE TABLE {customers} (name STRING, country STRING) USING delta")
        project = DbtProject(folder / "project")
        project.source("raw", "orders", location=str(folder / "lake" / "orders"), primary_key="id")
        project.source("raw", "customers", location_root="../lake")
        raw = "select * from {{ source('raw', 'orders') }} where status <> 'test'"
        project.node("stg_orders", raw, "select * from raw.orders where status <> 'test'", config={"materialized": "view"})
        # dbt compiled it when the table existed.
        compiled = "select o.id from dev.stg_orders as o where o.id > (select max(id) from dev.paid)"
        project.node("paid", _INCREMENTAL, compiled, config={"materialized": "incremental"})
        project.node(
            "by_country",
            "select country, sum(euros) as euros from {{ ref('paid') }} group by country",
            "with paid as (select * from `dev`.`paid`) select country, sum(euros) as euros from paid group by country",
            columns={n: {"name": n, "description": f"{n} of the customer"} for n in ("country", "not_selected")},
        )
        project.macro("cents", "{% macro cents(column) %}cast({{ column }} as decimal(20, 2)) / 100{% endmacro %}")
        project.test("paid", "unique", "id")
        project.test("paid", "relationships", "customer", {"to": "source('raw', 'customers')", "field": "name"})
        self.project = project.write()

    def sql(self, text):
        tables = {name: f"delta.`{self.folder}/lake/{name}`" for name in ("orders", "customers")}
        self.spark.sql(text.format(**tables))

    def __call__(self, verb, *arguments):
        where = ["--warehouse", str(self.warehouse)]
        where += ["--project", str(self.project)] if verb in ("run", "plan") else []
        done = CliRunner().invoke(app, [verb, *arguments, *where], env={"COLUMNS": "200"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    def rows(self, view):
        path = Warehouse(self.warehouse).target(view).path
        return sorted(self.spark.read.format("delta").load(path).select("country", "euros").collect(), key=str)


@pytest.fixture
def shop(spark, tmp_path):
    return Shop(spark, tmp_path)


def test_build_and_update(shop):
    shop.sql("INSERT INTO {customers} VALUES ('ann', 'at'), ('bob', 'be')")
    shop.sql("INSERT INTO {orders} VALUES (1, 'ann', 150, 'new'), (2, 'bob', 50, 'new'), (3, 'bob', 9, 'test')")
    code, said = shop("run", "--check")
    assert code == 0, said
    assert "is_incremental() is false, and its blocks are dropped, in paid" in said
    assert [(country, float(euros)) for country, euros in shop.rows("by_country")] == [("at", 1.5), ("be", 0.5)]
    comments = shop.spark.read.format("delta").load(Warehouse(shop.warehouse).target("by_country").path).schema
    assert comments["country"].metadata["comment"] == "country of the customer"
    # What dbt's incremental text misses: an update, a late row, a change of the other side.
    shop.sql("UPDATE {orders} SET cents = 250 WHERE id = 1")
    shop.sql("INSERT INTO {orders} VALUES (0, 'cid', 100, 'new')")
    shop.sql("UPDATE {customers} SET country = 'at' WHERE name = 'bob'")
    code, said = shop("run")
    assert code == 0, said
    assert [(country, float(euros)) for country, euros in shop.rows("by_country")] == [("at", 3.0), (None, 1.0)]
    assert shop("verify")[0] == 0
    code, said = shop("check", "paid")
    assert code == 1
    assert "relationships_paid_customer" in said
