"""Tables with columns whose names are also used for the places of rows in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import SourceEntry
from relstate_dagster.jobs.registration.registry import Registry
from tests.epoch.scripts import Script
from tests.sizes import Resized

_MARKED = "'delta.enableDeletionVectors' = 'true'"
_TRACKED = "'delta.enableRowTracking' = 'true'"
_FEED = "'delta.enableChangeDataFeed' = 'true'"
_MAPPED = "'delta.columnMapping.mode' = 'name'"
#: Delta itself deletes no rows of tables with vectors and a column ``_metadata``.
_CASES = [
    ("_file_name STRING", f"{_MARKED}, {_TRACKED}"),
    ("_FILE_NAME STRING", f"{_MARKED}, {_FEED}"),
    ("_file_position BIGINT", f"{_MARKED}, {_MAPPED}"),
    ("_tracked_id BIGINT", f"{_MARKED}, {_TRACKED}"),
    ("_tracked_version BIGINT", _TRACKED),
    ("_metadata STRUCT<file_name: STRING, file_path: STRING, row_index: BIGINT>", _TRACKED),
    ("_metadata STRING", f"{_TRACKED}, {_MAPPED}"),
    ("_Metadata STRING", _FEED),
]


def _value(column: str) -> str:
    return "named_struct('file_name', 'x', 'file_path', 'y', 'row_index', id)" if "STRUCT" in column else "id"


@pytest.mark.parametrize(("column", "properties"), _CASES)
def test_tables_that_change(
    script: Script, spark: SparkSession, tmp_path: Path, resized: Resized, column: str, properties: str
) -> None:
    resized(tracked_rows=0, tracked_row_bytes=0)
    table, name = f"delta.`{tmp_path / 't'}`", column.split()[0]
    spark.sql(f"CREATE TABLE {table} (k INT, v STRING, {column}) USING delta TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO {table} SELECT id, 'a', {_value(column)} FROM range(0, 40, 1, 2)")
    Registry(spark, script.warehouse).add_source(SourceEntry("t", str(tmp_path / "t"), ("k",)))
    script.run(
        "CREATE MATERIALIZED VIEW passed AS SELECT *, k + 1 AS j FROM t;"
        f"CREATE MATERIALIZED VIEW grouped AS SELECT v, count({name}) AS n, max(k) AS m FROM t GROUP BY v; REFRESH; VERIFY"
    )
    for change in ("DELETE FROM {t} WHERE k % 7 = 3", "UPDATE {t} SET v = 'b' WHERE k % 11 = 4", "DELETE FROM {t} WHERE k < 9"):
        spark.sql(change.replace("{t}", table))
        script.run("REFRESH; VERIFY")


@pytest.mark.parametrize("column", ["_metadata STRUCT<file_name: STRING, row_index: BIGINT>", "_metadata STRING"])
def test_rows_without_a_key_have_ids(script: Script, spark: SparkSession, tmp_path: Path, column: str) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {table} (v STRING, {column}) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true')")
    value = "named_struct('file_name', 'x', 'row_index', 1L)" if "STRUCT" in column else "'x'"
    Registry(spark, script.warehouse).add_source(SourceEntry("t", str(tmp_path / "t"), append_only=True))
    script.run("CREATE MATERIALIZED VIEW joined AS SELECT a.v, b.v AS other FROM t AS a JOIN t AS b ON a.v = b.v")
    for _ in range(3):
        spark.sql(f"INSERT INTO {table} SELECT id % 3, {value} FROM range(0, 8, 1, 2)")
        script.run("REFRESH; VERIFY")


def test_files_of_a_folder(script: Script, spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    script.run(f"CREATE TABLE t (k INT, _metadata STRING) USING json LOCATION '{folder}'")
    script.run("CREATE MATERIALIZED VIEW passed AS SELECT k, _metadata AS m FROM t")
    for first in (0, 10):
        rows = spark.range(first, first + 5).selectExpr("CAST(id AS INT) AS k", "'x' AS _metadata")
        rows.coalesce(1).write.mode("append").json(str(folder))
        script.run("REFRESH; VERIFY")
