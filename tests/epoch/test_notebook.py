"""Views in a notebook: their functions have no file, and are edited in another cell."""

from __future__ import annotations

import pytest

from relstate_dagster import Notebook
from relstate_dagster.state_lib.errors import DeclarationError


def cell(text, **names):
    """Run a cell, whose functions lie in no file."""
    exec(compile(text, "<cell>", "exec"), names)
    return names


def test_a_view_of_a_notebook_is_shown_edited_and_verified(spark, tmp_path):
    relstate = Notebook(spark, tmp_path / "warehouse")
    relstate.sql(
        "CREATE TABLE orders (id INT, day STRING, cents INT); INSERT INTO orders VALUES (1, '<mon>', 5), (2, 'tue', 7)"
    )
    names = cell("least = 0\nquery = lambda spark: spark.table('orders').where(f'cents > {least}').groupBy('day').count()")
    view = relstate.view("days", names["query"], comment="By day.")
    assert repr(view).splitlines()[0] == "view days: incremental"
    assert "<td>&lt;mon&gt;</td><td>1</td>" in view._repr_html_()
    assert "equals its query" in repr(view.verify())
    assert "<svg" in view.explain()._repr_html_()
    assert "Aggregate" in repr(view.explain())
    relstate.sql("INSERT INTO orders VALUES (3, 'tue', 6)")
    assert "incremental" in view.refresh().text
    assert sorted(tuple(row) for row in view.rows().collect()) == [("<mon>", 1), ("tue", 2)]
    generation = relstate.warehouse.read().views["days"].generation
    relstate.view("days", names["query"])
    assert relstate.warehouse.read().views["days"].generation == generation
    names["query"].__globals__["least"] = 6
    view = relstate.view("days", names["query"])
    assert [tuple(row) for row in view.rows().collect()] == [("tue", 1)]
    assert "equals its query" in repr(view.verify())
    assert repr(relstate.sql("SELECT day, count FROM days")) == "day | count\ntue | 1"


def first_days(spark):
    return spark.table("days").groupBy().min("id")


def test_functions_of_modules_and_sql_are_views_too(spark, tmp_path):
    relstate = Notebook(spark, tmp_path / "warehouse")
    relstate.sql("CREATE TABLE orders (id INT, day STRING); INSERT INTO orders VALUES (1, 'mon')")
    relstate.view("days", "SELECT DISTINCT id FROM orders")
    assert [tuple(row) for row in relstate.view("first", first_days).rows().collect()] == [(1,)]


def test_a_dataframe_is_no_query(spark, tmp_path):
    relstate = Notebook(spark, tmp_path / "warehouse")
    with pytest.raises(DeclarationError, match=r"give the function that returns the DataFrame"):
        relstate.view("v", spark.range(3))
