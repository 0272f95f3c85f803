"""The oracle: what counts as a difference between a view and its query."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.inspect.verify import bag_difference, difference
from tests.epoch.scripts import Script
from tests.sizes import Resized

_ROWS = "(VALUES (1, 'a'), (1, 'b'), (2, 'c'), (2, 'd'), (2, 'd')) AS r(g, s)"


@pytest.mark.parametrize(
    ("query", "rows", "expected"),
    [
        # Which of the rows with g = 2 comes third is left open, which g it has is not.
        (f"SELECT g, s FROM {_ROWS} ORDER BY g LIMIT 3", [(1, "b"), (1, "a"), (2, "d")], (0, 0)),
        (f"WITH c AS (SELECT * FROM {_ROWS}) SELECT s, g FROM c ORDER BY g LIMIT 3", [("a", 1), ("b", 1), ("c", 2)], (0, 0)),
        (f"SELECT g, s FROM {_ROWS} ORDER BY g LIMIT 3", [(1, "a"), (2, "c"), (2, "d")], (1, 1)),
        # A row that is not there, as often as one that is.
        (f"SELECT g, s FROM {_ROWS} ORDER BY g LIMIT 3", [(1, "a"), (1, "b"), (2, "x")], (1, 1)),
        (f"SELECT g, s FROM {_ROWS} ORDER BY g LIMIT 4", [(1, "a"), (1, "b"), (2, "c"), (2, "c")], (1, 1)),
        (f"SELECT g, s FROM {_ROWS} ORDER BY g LIMIT 3", [(1, "a"), (1, "b")], (1, 0)),
        # Sorted by all columns, nothing is open.
        (f"SELECT g, s FROM {_ROWS} ORDER BY g, s LIMIT 3", [(1, "a"), (1, "b"), (2, "d")], (1, 1)),
        (f"SELECT s FROM {_ROWS} LIMIT 2", [("d",), ("d",)], (0, 0)),
        (f"SELECT g FROM {_ROWS} ORDER BY g LIMIT 1 OFFSET 2", [(2,)], (0, 0)),
        # Without a limit, and where the order is by what is not shown, rows are what they are.
        (f"SELECT g, s FROM {_ROWS} ORDER BY g", [(1, "a"), (1, "a"), (2, "c"), (2, "d"), (2, "d")], (1, 1)),
        (f"SELECT DISTINCT g FROM {_ROWS}", [(1,), (3,)], (1, 1)),
    ],
)
def test_rows_that_a_limit_may_pick(spark: SparkSession, query: str, rows: list, expected: tuple[int, int]) -> None:
    wanted = spark.sql(query)
    assert difference(wanted, spark.createDataFrame(rows, wanted.schema)) == expected


@pytest.mark.parametrize("few_values", [-1, 1 << 30])
def test_a_query_is_run_in_full_over_much_and_over_few(script: Script, resized: Resized, few_values: int) -> None:
    resized(interpreted_values=few_values)
    script.run(
        "CREATE TABLE t (k INT, g INT, PRIMARY KEY (k)); INSERT INTO t SELECT id, id % 3 FROM range(20);"
        "CREATE MATERIALIZED VIEW counts AS SELECT g, count(*) AS n FROM t GROUP BY g;"
        "CREATE MATERIALIZED VIEW most AS SELECT max(n) AS n FROM counts; REFRESH; VERIFY"
    )
    assert script.rows("SELECT n FROM most") == [(7,)]


@pytest.mark.parametrize("wrong", [3, 700])
def test_many_rows_that_differ_in_their_last_digits_are_equal(spark: SparkSession, wrong: int) -> None:
    columns = ("id % 10000 AS g", "IF(id % 7 = 0, NULL, id / 3D) AS x", "array(id / 7D, NULL) AS a", "map('k', id / 9D) AS m")
    rounded = "transform_values(m, (k, v) -> v * (1 + 1E-12)) AS m"
    expected = spark.range(40_000).selectExpr("id", *columns)
    actual = expected.selectExpr(
        "id", "g", f"x * (1 + 1E-12) + IF(id < {wrong}, 1, 0) AS x", "transform(a, v -> v * (1 + 1E-12)) AS a", rounded
    )
    others = len([n for n in range(wrong) if n % 7])
    assert bag_difference(expected, actual) == (others, others)
    # Without a column that tells the rows apart they are paired in their order.
    assert bag_difference(expected.select("g", "x"), actual.select("g", "x")) == (others, others)


def test_a_query_may_name_what_its_plan_does_not_read(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        """
        CREATE TABLE a (k INT, PRIMARY KEY (k));
        CREATE TABLE b (k INT, `größe` STRUCT<x: INT>, at TIMESTAMP);
        CREATE TABLE c (k INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert');
        INSERT INTO a VALUES (1);
        CREATE MATERIALIZED VIEW over_b AS SELECT k, `größe` FROM b;
        CREATE VIEW plain AS WITH u AS (SELECT k FROM over_b) SELECT a.k FROM a;
        CREATE MATERIALIZED VIEW v AS WITH u AS (SELECT * FROM b), w AS (SELECT * FROM over_b), x AS (SELECT * FROM c)
            SELECT k FROM a;
        CREATE MATERIALIZED VIEW over_plain AS SELECT k FROM plain;
        """
    )
    views = script.warehouse.read().views
    assert views["v"].reads == views["over_plain"].reads == ("a",)
    script.verify()
    script.run("INSERT INTO a VALUES (2); INSERT INTO b VALUES (1, NULL, NULL); REFRESH")
    script.verify()
