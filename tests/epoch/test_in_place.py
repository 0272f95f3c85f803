"""Joins that look their sides up in place: in sources of any layout, in views, and where that gives more than fits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Join, walk
from tests.epoch.scripts import Script
from tests.operators.watching import watch_joins

_SETUP = """
CREATE TABLE item (k INT, g INT, `a-name` STRING, PRIMARY KEY (k)) USING delta PARTITIONED BY (g)
  TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');
CREATE TABLE part (k INT, g INT, w INT, PRIMARY KEY (k)) USING delta
  TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true');
CREATE TABLE dim (g INT, name STRING, PRIMARY KEY (g)) USING delta
  TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name');
CREATE TABLE fact (id INT, k INT, v INT, PRIMARY KEY (id)) USING delta
  TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');
INSERT INTO item SELECT id, id % 3, if(id % 4 = 0, NULL, 'i' || id) FROM range(12);
INSERT INTO part SELECT id, id % 3, id * 10 FROM range(12);
INSERT INTO dim VALUES (0, 'a'), (1, 'b');
INSERT INTO fact SELECT id, id % 12, id FROM range(40);
CREATE MATERIALIZED VIEW busy AS SELECT k, count(*) AS n FROM fact GROUP BY k;
CREATE MATERIALIZED VIEW chain AS
  SELECT f.id, i.`a-name` AS name, p.w, d.name AS dim
  FROM fact f JOIN item i ON f.k = i.k JOIN part p ON p.k = i.k AND p.w > f.v JOIN dim d ON d.g <=> p.g;
CREATE MATERIALIZED VIEW over_a_view AS
  SELECT i.k, b.n, d.name FROM item i JOIN busy b ON b.k = i.k LEFT JOIN dim d ON d.g = i.g;
CREATE MATERIALIZED VIEW stacked AS
  SELECT f.id, s.w FROM fact f JOIN (SELECT k + 1 AS k1, w FROM part UNION ALL SELECT k, g FROM item WHERE g > 0) s
  ON s.k1 = f.k;
"""
_EPOCHS = (
    "INSERT INTO fact VALUES (100, 3, 1), (101, 99, 1); REFRESH",
    "DELETE FROM part WHERE k IN (3, 4); UPDATE item SET g = g + 1 WHERE k < 5; UPDATE fact SET k = 5 WHERE id < 6; REFRESH",
    "MERGE INTO part USING (SELECT 3 AS k UNION ALL SELECT 5) s ON part.k = s.k WHEN MATCHED THEN UPDATE SET g = NULL "
    "WHEN NOT MATCHED THEN INSERT (k, g, w) VALUES (s.k, 1, 70); DELETE FROM dim WHERE g = 0; INSERT INTO dim VALUES (2, 'c'); "
    "DELETE FROM fact WHERE id % 2 = 0; REFRESH",
    "REFRESH",
)


def test_sources_of_any_layout_and_views_are_looked_up_in_place(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP)
    views = script.warehouse.read().views
    for name, in_place in (("chain", [True] * 6), ("over_a_view", [True, True, False, True]), ("stacked", [True, True])):
        plan = views[name].plan
        assert plan is not None
        joins = [n for n in walk(plan) if isinstance(n, Join)]
        assert [side for join in joins for side in (join.left_in_place, join.right_in_place)] == in_place, name
    assert [t.schema.label for t in views["chain"].tables] == ["mv"]
    script.verify()
    for epoch in _EPOCHS:
        script.run(epoch)
        script.verify()


def test_rows_without_a_key_are_looked_up_in_a_view_that_stores_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    """Not in the source: an id is given to a row when it arrives."""
    script = Script(spark, tmp_path / "warehouse")
    joined = "SELECT a.v, d.name FROM {} a JOIN dim d ON d.g = a.g"
    script.run(
        "CREATE TABLE log (g INT, v INT) TBLPROPERTIES ('delta.appendOnly' = 'true');"
        "CREATE TABLE dim (g INT, name STRING, PRIMARY KEY (g));"
        "INSERT INTO log VALUES (0, 1), (0, 1), (1, 2), (NULL, 3); INSERT INTO dim VALUES (0, 'a'), (1, 'b');"
        "CREATE MATERIALIZED VIEW rows AS SELECT g, v FROM log;"
        "CREATE MATERIALIZED VIEW positive AS SELECT g, v FROM rows WHERE v > 1;"
        f"CREATE MATERIALIZED VIEW of_log AS {joined.format('log')};"
        f"CREATE MATERIALIZED VIEW of_rows AS {joined.format('rows')};"
        f"CREATE MATERIALIZED VIEW of_positive AS {joined.format('positive')};"
        "REFRESH"
    )
    views = script.warehouse.read().views
    for name, in_place in (("of_log", False), ("of_rows", True), ("of_positive", True)):
        (join,) = (node for node in walk(views[name].plan) if isinstance(node, Join))
        assert (join.left_in_place, join.right_in_place) == (in_place, True), name
        assert len(views[name].tables) == 1 + (not in_place), name
    for epoch in (
        "UPDATE dim SET name = 'c' WHERE g = 0",
        "INSERT INTO log VALUES (0, 1), (1, 5), (2, 6); DELETE FROM dim WHERE g = 1; INSERT INTO dim VALUES (2, 'd')",
        "INSERT INTO log VALUES (1, 7), (1, 7); INSERT INTO dim VALUES (1, 'e'); UPDATE dim SET g = 3 WHERE g = 0",
        "UPDATE dim SET name = concat(name, '!')",
    ):
        script.run(f"{epoch}; REFRESH; VERIFY")


_LARGE = """
from tests.epoch.scripts import Script
from relstate_dagster.jobs.engine import SparkSettings, create_session
from pathlib import Path
import sys

# A broadcast is collected, too: below the limit here, as the defaults of 10 MB and 1 GB are.
conf = {"spark.driver.maxResultSize": "64k", "spark.sql.autoBroadcastJoinThreshold": "4k"}
spark = create_session(SparkSettings(master="local[2]", shuffle_partitions=2, conf=conf))
script = Script(spark, Path(sys.argv[1]))
script.run('''
CREATE TABLE d (g INT, name STRING, PRIMARY KEY (g));
CREATE TABLE t (k INT, g INT, v STRING, PRIMARY KEY (k));
INSERT INTO d VALUES (0, 'a'), (1, 'b');
INSERT INTO t SELECT id, id % 2, 'some text' || id FROM range(20000);
CREATE MATERIALIZED VIEW j AS SELECT d.name, t.v, count(*) AS n FROM t JOIN d ON t.g = d.g JOIN d e ON e.g = t.g
  GROUP BY d.name, t.v;
UPDATE d SET name = 'c' WHERE g = 1;
REFRESH
''')
script.verify()
print(script.rows("SELECT count(*) AS n FROM j WHERE name = 'c'"))
"""


def test_a_change_that_meets_more_rows_than_the_driver_may_hold(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LARGE, str(tmp_path / "warehouse")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("[(10000,)]")


def test_new_keys_on_both_sides_are_told_by_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = watch_joins(monkeypatch)
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        "CREATE TABLE o (k INT, d INT, PRIMARY KEY (k)); CREATE TABLE l (k INT, n INT, v INT, PRIMARY KEY (k, n));"
        "INSERT INTO o SELECT id, id % 3 FROM range(20); INSERT INTO l SELECT id % 20, id, id FROM range(60);"
        "CREATE MATERIALIZED VIEW a AS SELECT o.k, l.n, o.d, l.v FROM o JOIN l ON o.k = l.k; REFRESH"
    )
    for statements, one_term in (
        # Besides, lines of an older order and of none.
        ("INSERT INTO o VALUES (20, 1), (21, 2); INSERT INTO l VALUES (20, 0, 5), (21, 0, 6), (3, 99, 7), (31, 0, 1)", True),
        # The order of an older line: what is new on each side meets something old on the other.
        ("INSERT INTO o VALUES (31, 1); INSERT INTO l VALUES (21, 1, 5)", False),
        # Rows that were replaced are in no file of today.
        ("UPDATE o SET k = 50 WHERE k = 31; DELETE FROM l WHERE k = 31; INSERT INTO l VALUES (50, 0, 5)", False),
        ("INSERT INTO o VALUES (60, 1), (61, 1); INSERT INTO l VALUES (62, 0, 1)", True),
        ("UPDATE o SET d = 9 WHERE k = 60; INSERT INTO l VALUES (60, 0, 5)", True),
    ):
        alone.clear()
        script.run(f"{statements}; REFRESH")
        script.verify()
        assert alone == [one_term], statements
