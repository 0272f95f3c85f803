"""``'history' = 'scd2'``: all versions of rows, with late ones in their places."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib.errors import DeclarationError
from tests.epoch.scripts import Script
from tests.operators.histories import seeds_of
from tests.sizes import Resized

pytestmark = pytest.mark.spark

_TABLE = """
CREATE TABLE u (k STRING, v INT, ts INT, gone BOOLEAN, PRIMARY KEY (k))
TBLPROPERTIES ('source.kind' = 'upsert', 'source.deleted' = 'gone', 'history' = 'scd2', 'history.order' = 'ts');
"""
_SHOWN = "SELECT k, v, __start_at, __end_at FROM u"


def test_versions_and_late_rows(script: Script, spark: SparkSession) -> None:
    script.run(f"{_TABLE} INSERT INTO u VALUES ('a', 1, 10, false), ('b', 5, 10, NULL), ('a', 2, 20, false); REFRESH")
    assert script.rows(_SHOWN) == [("a", 1, 10, 20), ("a", 2, 20, None), ("b", 5, 10, None)]
    script.run("CREATE MATERIALIZED VIEW current_rows AS SELECT k, v FROM u WHERE __end_at IS NULL")
    # One key goes, one is updated, and a row comes late: between two versions, and before all.
    script.run("INSERT INTO u VALUES ('b', NULL, 30, true), ('a', 3, 25, false)")
    script.run("INSERT INTO u VALUES ('a', 9, 15, false), ('b', 4, 5, false); REFRESH")
    assert script.rows(_SHOWN) == [
        ("a", 1, 10, 15),
        ("a", 2, 20, 25),
        ("a", 3, 25, None),
        ("a", 9, 15, 20),
        ("b", 4, 5, 10),
        ("b", 5, 10, 30),
    ]
    assert script.rows("SELECT * FROM current_rows") == [("a", 3)]
    script.verify()
    # A late deletion ends a version early; the key comes back; what is delivered twice changes nothing.
    script.run("INSERT INTO u VALUES ('a', NULL, 12, true), ('b', 6, 40, false), ('a', 3, 25, false)")
    script.run("INSERT INTO u VALUES ('a', 9, 15, false)")
    reports = {report.view: report for report in EpochRunner(spark, script.warehouse).run()}
    assert (reports["u"].strategy, reports["u"].rows_inserted, reports["u"].rows_deleted) == ("incremental", 2, 1)
    assert script.rows(_SHOWN)[0] == ("a", 1, 10, 12)
    assert script.rows("SELECT * FROM current_rows") == [("a", 3), ("b", 6)]
    script.verify()


def test_two_rows_of_a_key_with_one_order(script: Script) -> None:
    script.run(f"{_TABLE} INSERT INTO u VALUES ('a', 1, 10, false), ('a', 2, 10, false)")
    error = str(script.error("REFRESH"))
    assert "two different rows of one key with the same history.order" in error
    assert '{"k":"a"}' in error
    script.run("DROP TABLE u; " + _TABLE.replace("'history' =", "'source.order' = 'v', 'history' ="))
    script.run("INSERT INTO u VALUES ('a', 1, 10, false), ('a', 2, 10, false), ('a', 0, 10, true); REFRESH; VERIFY")
    assert script.rows(_SHOWN) == [("a", 2, 10, None)], (
        "the one that source.order makes the last; others were valid for no time"
    )
    script.run("INSERT INTO u VALUES (NULL, 1, 10, false)")
    assert "NULL in its key" in str(script.error("REFRESH"))


@pytest.mark.parametrize(
    ("columns", "one", "other"),
    [
        ("p INT, q INT", "1, NULL", "NULL, 1"),
        ("p STRING, q STRING", "'null', NULL", "NULL, 'null'"),
        ("p ARRAY<STRING>, q STRING", "array('a', NULL), 'b'", "array(NULL, 'a'), 'b'"),
        ("p TIMESTAMP, q INT", "TIMESTAMP '2026-01-01 00:00:00.000001', 1", "TIMESTAMP '2026-01-01 00:00:00.000002', 1"),
        ("p TIMESTAMP_NTZ, q DOUBLE", "TIMESTAMP_NTZ '2026-01-01 00:00:00.000001', 1", "TIMESTAMP_NTZ '2026-01-01', 1"),
    ],
)
def test_rows_that_differ_little_are_not_taken_for_one(script: Script, columns: str, one: str, other: str) -> None:
    script.run(f"""CREATE TABLE u (k INT, {columns}, ts INT, PRIMARY KEY (k))
        TBLPROPERTIES ('source.kind' = 'upsert', 'history' = 'scd2', 'history.order' = 'ts');
        INSERT INTO u SELECT 1, {one}, 10 UNION ALL SELECT 1, {one}, 10; REFRESH; VERIFY""")
    assert script.rows("SELECT count(*) FROM u") == [(1,)]
    script.run(f"INSERT INTO u SELECT 1, {other}, 10")
    assert "two different rows of one key" in str(script.error("REFRESH"))


def test_debezium(script: Script) -> None:
    order = "'source.order' = 'CAST(event.source[''lsn''] AS BIGINT)'"
    script.run(f"""CREATE TABLE people (id INT, name STRING, PRIMARY KEY (id))
        TBLPROPERTIES ('source.kind' = 'debezium', 'source.envelope' = 'value', {order},
                       'history' = 'scd2', 'history.order' = 'timestamp_millis(event.ts_ms)')""")

    def event(op: str, name: str | None, at: int, lsn: int) -> str:
        row = {"id": 1, "name": name}
        sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        return f"('{json.dumps({'op': op, **sides, 'ts_ms': at * 1000, 'source': {'lsn': lsn}})}')"

    script.run(f"INSERT INTO people VALUES {event('c', 'ann', 10, 1)}, {event('u', 'Ann', 20, 3)}; REFRESH")
    # Two changes in one moment: the log's position says which is the last one.
    script.run(
        f"INSERT INTO people VALUES {event('u', 'anna', 15, 2)}, {event('d', None, 30, 5)}, {event('u', 'x', 30, 4)}, (NULL)"
    )
    script.run("REFRESH; VERIFY")
    seconds = "SELECT name, unix_timestamp(__start_at), unix_timestamp(__end_at) FROM people"
    assert script.rows(seconds) == [("Ann", 20, 30), ("ann", 10, 15), ("anna", 15, 20)]


@pytest.mark.parametrize(
    "sizes",
    [{}, {"driver_change_bytes": 0, "driver_backfill_bytes": 0}, {"recompute_values": 1, "recompute_share": 0.3}],
    ids=["driver", "executors", "recomputed"],
)
def test_random_histories(script: Script, sizes: dict[str, float], resized: Resized) -> None:
    """Against the definition, in Python, and against the query in full."""
    resized(**sizes)
    for seed in seeds_of("scd2"):
        draw, rows = random.Random(seed), dict[tuple[str, int], tuple[int, bool]]()
        script.run(f"DROP TABLE IF EXISTS u; {_TABLE}")
        for _ in range(4):
            fresh = {}
            for _ in range(draw.randint(0, 6)):
                at = draw.choice("abc"), draw.randint(0, 30)
                if at not in rows:
                    rows[at] = fresh[at] = (draw.randint(0, 2), draw.random() < 0.3)
            if fresh:
                values = ", ".join(f"('{k}', {v}, {ts}, {str(gone).lower()})" for (k, ts), (v, gone) in fresh.items())
                script.run(f"INSERT INTO u VALUES {values}")
            script.run("REFRESH; VERIFY")
            wanted = []
            for (k, ts), (v, gone) in rows.items():
                later = [other for key, other in rows if key == k and other > ts]
                wanted += [] if gone else [(k, v, ts, min(later, default=None))]
            assert script.rows(_SHOWN) == sorted(wanted, key=str)


def test_an_existing_table_without_listed_columns(script: Script, spark: SparkSession, tmp_path) -> None:
    path = tmp_path / "there"
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT, v INT, at TIMESTAMP) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1, TIMESTAMP '2026-01-02'), (1, 2, TIMESTAMP '2026-01-01')")
    script.run(f"""CREATE TABLE t (PRIMARY KEY (k)) USING delta LOCATION '{path}'
        TBLPROPERTIES ('source.kind' = 'upsert', 'history' = 'scd2', 'history.order' = 'at'); REFRESH; VERIFY""")
    assert script.rows("SELECT k, v, year(__end_at) FROM t") == [(1, 1, None), (1, 2, 2026)]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("'source.kind' = 'upsert', 'history' = 'scd1', 'history.order' = 'ts'", "'history' = 'scd1' is unknown"),
        ("'source.kind' = 'upsert', 'history' = 'scd2'", "needs 'history.order'"),
        ("'source.kind' = 'upsert', 'history.order' = 'ts'", "says nothing without 'history'"),
        ("'history' = 'scd2', 'history.order' = 'ts'", "says nothing of a source of 'source.kind' = 'table'"),
        ("'source.kind' = 'upsert', 'history' = 'scd2', 'history.order' = 'ts', 'history.to' = 'x'", "'history.to' is unknown"),
    ],
)
def test_wrong_properties(script: Script, properties: str, message: str) -> None:
    error = script.error(f"CREATE TABLE u (k INT, ts INT, PRIMARY KEY (k)) TBLPROPERTIES ({properties})")
    assert isinstance(error, DeclarationError)
    assert message in str(error)
    reserved = "CREATE TABLE u (k INT, __end_at INT, PRIMARY KEY (k)) TBLPROPERTIES "
    error = script.error(f"{reserved} ('source.kind' = 'upsert', 'history' = 'scd2', 'history.order' = '__end_at')")
    assert "cannot have a column __end_at" in str(error)
