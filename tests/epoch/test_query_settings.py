"""A view means what it meant in the session that declared it: planned, run, rebuilt and verified under that one's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner
from tests.epoch.scripts import Script

_TABLES = "CREATE TABLE t (k INT, v DECIMAL(30,10), PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1.5), (2, 2.5);"


@pytest.mark.parametrize(
    ("key", "setting", "query", "column"),
    [
        ("spark.sql.timestampType", "TIMESTAMP_NTZ", "TIMESTAMP '2024-03-01 12:00:00'", "timestamp_ntz"),
        ("spark.sql.decimalOperations.allowPrecisionLoss", "false", "v * v", "decimal(38,20)"),
        ("spark.sql.session.timeZone", "Asia/Tokyo", "CAST(TIMESTAMP '2024-03-01 12:00:00' AS STRING)", "string"),
        ("spark.sql.parser.escapedStringLiterals", "true", r"concat('a\n', k)", "string"),
        ("spark.sql.ansi.enabled", "false", "k / (k - 1)", "double"),
    ],
)
def test_settings_are_those_of_the_declaration(
    spark: SparkSession, tmp_path: Path, key: str, setting: str, query: str, column: str
) -> None:
    declaring = Script(spark, tmp_path / "warehouse")
    declaring.run(_TABLES)
    declaring.session._spark.conf.set(key, setting)
    declaring.run(f"CREATE MATERIALIZED VIEW m AS SELECT k, {query} AS x FROM t; VERIFY")
    before = declaring.rows("SELECT * FROM m")
    assert dict(spark.read.format("delta").load(declaring.warehouse.target("m").path).dtypes)["x"] == column
    # A session with the settings of another person, and with those that Spark has by itself.
    later = Script(spark, tmp_path / "warehouse")
    later.run("UPDATE t SET v = v WHERE k = 1; INSERT INTO t VALUES (3, 3.5); REFRESH; VERIFY")
    list(EpochRunner(later.session._spark, later.warehouse).run(full_refresh=["m"]))
    later.verify()
    assert dict(spark.read.format("delta").load(later.warehouse.target("m").path).dtypes)["x"] == column
    assert [row for row in later.rows("SELECT * FROM m") if row[0] != 3] == before
