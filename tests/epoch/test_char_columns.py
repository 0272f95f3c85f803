"""Columns of type CHAR: Spark pads what it reads of them, whoever has written it, and in whatever files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.errors import RelstateError
from tests.epoch.scripts import Script

_VIEWS = """
CREATE MATERIALIZED VIEW joined AS
    SELECT p.id, q.w, length(p.c) AS n, q.c FROM p LEFT JOIN q ON p.c = q.c AND p.id >= q.w;
CREATE MATERIALIZED VIEW grouped AS
    SELECT c, count(*) AS n, max(id) AS m, max(s.x) AS x FROM p GROUP BY c HAVING c IN ('ab', 'x', 'a') OR max(c) = 'a';
CREATE MATERIALIZED VIEW compared AS
    SELECT l.id, p.id AS other, p.c = 'ab' AS is_ab, p.s.x = 'x' AS is_x, concat(p.c, '|') AS shown
    FROM p JOIN p AS l ON l.v = p.v AND (l.c = 'ab' OR p.c < l.c)
    WHERE NOT EXISTS (SELECT 1 FROM q WHERE q.c = p.c AND q.w = 6);
"""
_LAYOUTS = {
    "plain": "TBLPROPERTIES (",
    "partitioned": "PARTITIONED BY (c) TBLPROPERTIES (",
    "mapped": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', ",
}
_FEED = "'delta.enableChangeDataFeed' = 'true')"


def _insert(spark: SparkSession, path: Path, rows: list[tuple[int, str | None]]) -> None:
    """Rows with texts as they are: where Delta knows a table by its path alone, it pads none of what a union gives."""
    of_row = (
        f"SELECT {k}L AS id, {'NULL' if c is None else repr(c)} AS c, named_struct('x', 'x') AS s, 1 AS v" for k, c in rows
    )
    spark.sql(f"INSERT INTO delta.`{path}` {' UNION ALL '.join(of_row)}")


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_texts_shorter_than_their_column_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    """In changes, lookups in place, backfills, and comparisons, with files of any writer."""
    p, q = tmp_path / "p", tmp_path / "q"
    script = Script(spark, tmp_path / "warehouse")
    columns = "id BIGINT, c CHAR(4), s STRUCT<x: CHAR(3)>, v INT"
    spark.sql(f"CREATE TABLE delta.`{p}` ({columns}) USING delta {_LAYOUTS[layout]}{_FEED}")
    spark.sql(f"CREATE TABLE delta.`{q}` (c STRING, w INT) USING delta TBLPROPERTIES ({_FEED}")
    _insert(spark, p, [(1, "ab"), (2, "a"), (3, "abcd"), (4, None)])
    spark.sql(f"INSERT INTO delta.`{q}` VALUES ('ab', 1), ('ab  ', 2), ('a   ', 1), ('abcd', 4)")
    script.run(f"CREATE TABLE p (PRIMARY KEY (id)) USING delta LOCATION '{p}'; CREATE TABLE q USING delta LOCATION '{q}'")
    script.run(_VIEWS)

    def refreshed() -> None:
        script.run("REFRESH")
        script.verify()

    refreshed()
    assert script.rows("SELECT id, w, n FROM joined") == [(1, None, 4), (2, 1, 4), (3, None, 4), (4, None, None)]
    _insert(spark, p, [(5, "ab"), (6, "x")])
    spark.sql(f"INSERT INTO delta.`{q}` VALUES ('x   ', 6), ('ab  ', 0)")
    refreshed()
    assert (6, 6, 4) in script.rows("SELECT id, w, n FROM joined")
    if layout in ("plain", "partitioned"):
        struct = pa.array([{"x": "y"}, {"x": "x"}], pa.struct([("x", pa.string())]))
        rows = pa.table({"id": pa.array([7, 8], pa.int64()), "c": ["ab", "x"], "s": struct, "v": pa.array([1, 1], pa.int32())})
        write_deltalake(str(p), rows, mode="append")
    spark.sql(f"UPDATE delta.`{p}` SET c = 'a' WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{p}` WHERE c = 'x' AND id = 6 OR id = 2")
    spark.sql(f"DELETE FROM delta.`{q}` WHERE w = 1")
    refreshed()


def test_a_key_of_such_a_column_is_the_same_with_and_without_blanks(spark: SparkSession, tmp_path: Path) -> None:
    """Lookups by it find its row, and another row with it is refused."""
    p = tmp_path / "p"
    script = Script(spark, tmp_path / "warehouse")
    spark.sql(f"CREATE TABLE delta.`{p}` (c CHAR(4), v INT) USING delta TBLPROPERTIES ({_FEED}")
    texts = pa.schema([("c", pa.string()), ("v", pa.int32())])
    for c in ("ab", "b", "zz"):  # files whose texts lie apart from each other
        write_deltalake(str(p), pa.Table.from_pylist([{"c": c, "v": 1}], texts), mode="append")
    script.run(
        f"CREATE TABLE p (PRIMARY KEY (c)) USING delta LOCATION '{p}'; CREATE TABLE q (k INT, c STRING, PRIMARY KEY (k))"
    )
    script.run("CREATE MATERIALIZED VIEW j AS SELECT q.k, q.c, p.v FROM q LEFT JOIN p ON p.c = q.c; REFRESH")
    script.run("INSERT INTO q VALUES (1, 'ab  '), (2, 'ab'), (3, 'b   '); REFRESH; VERIFY")
    assert script.rows("SELECT * FROM j") == [(1, "ab  ", 1), (2, "ab", None), (3, "b   ", 1)]
    write_deltalake(str(p), pa.Table.from_pylist([{"c": "c", "v": 2}], texts), mode="append")
    script.run("INSERT INTO q VALUES (4, 'c   '); REFRESH; VERIFY")
    write_deltalake(str(p), pa.Table.from_pylist([{"c": "ab  ", "v": 3}], texts), mode="append")
    error = script.error("REFRESH")
    assert isinstance(error, RelstateError)
    assert "PRIMARY KEY (c)" in str(error)
