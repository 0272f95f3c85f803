"""Errors of rows of changes name a remedy that works."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner
from tests.epoch.scripts import Script

_TABLE = "CREATE TABLE u (k INT, ts INT, v INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert'{order});"
_ORDER = ", 'source.order' = 'ts'"
_BEGINNING = "INSERT INTO u VALUES (1, 1, 10), (2, 1, 20); CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS v FROM u;"


def _begun(spark: SparkSession, tmp_path: Path, order: str) -> Script:
    script = Script(spark, tmp_path / "wh")
    script.begin(_TABLE.format(order=order) + _BEGINNING)
    return script


@pytest.mark.parametrize("order", ["", _ORDER])
def test_a_null_key_is_deleted(spark: SparkSession, tmp_path: Path, order: str) -> None:
    script = _begun(spark, tmp_path, order)
    script.run("INSERT INTO u VALUES (NULL, 2, 1), (3, 2, 30)")
    said = str(script.error("REFRESH"))
    assert '{"k":null}' in said
    assert "ALTER TABLE u_changelog SET TBLPROPERTIES ('delta.appendOnly' = 'false')" in said
    assert "ALTER TABLE u_changelog SET" in str(script.error("DELETE FROM u_changelog WHERE k IS NULL"))
    script.run("ALTER TABLE u_changelog SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    script.run("DELETE FROM u_changelog WHERE k IS NULL")
    list(EpochRunner(spark, script.warehouse).run(full_refresh=["u"]))
    script.run("ALTER TABLE u_changelog SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    script.run("INSERT INTO u VALUES (2, 3, 21); REFRESH; VERIFY")
    assert script.rows("SELECT k, v FROM u") == [(1, 10), (2, 21), (3, 30)]
    assert script.rows("SELECT v FROM total") == [(61,)]


def test_a_null_key_where_commits_are_the_order(spark: SparkSession, tmp_path: Path) -> None:
    script = _begun(spark, tmp_path, "")
    script.run("INSERT INTO u VALUES (1, 2, 11); REFRESH; INSERT INTO u VALUES (NULL, 2, 1), (3, 2, 30)")
    assert "create another table, insert the rows of u" in str(script.error("REFRESH"))
    script.run(_TABLE.format(order="").replace("TABLE u", "TABLE w"))
    script.run("INSERT INTO w SELECT * FROM u; INSERT INTO w VALUES (3, 2, 30); DROP MATERIALIZED VIEW total; DROP TABLE u")
    script.run("CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS v FROM w; VERIFY")
    assert script.rows("SELECT k, v FROM w") == [(1, 11), (2, 20), (3, 30)]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_tie_is_replaced_by_a_newer_row(spark: SparkSession, tmp_path: Path, is_first: bool) -> None:
    script = Script(spark, tmp_path / "wh")
    script.run(_TABLE.format(order="") + ("" if is_first else _BEGINNING))
    script.run("INSERT INTO u VALUES (1, 2, 11), (1, 2, 12)")
    said = str(script.error("REFRESH"))
    assert '{"k":1}' in said
    assert "insert a newer row of this key" in said
    script.run("INSERT INTO u VALUES (1, 3, 13); REFRESH; VERIFY")
    assert script.rows("SELECT v FROM u WHERE k = 1") == [(13,)]


def test_a_tie_in_an_order_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    script = _begun(spark, tmp_path, _ORDER)
    script.run("INSERT INTO u VALUES (1, 2, 11), (1, 2, 12)")
    assert "one with a greater 'source.order'" in str(script.error("REFRESH"))
    script.run("INSERT INTO u VALUES (1, 3, 13); REFRESH; VERIFY")
    assert script.rows("SELECT v FROM u WHERE k = 1") == [(13,)]
