"""Rows deleted from a table of changes without ``source.order``."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.declare.changelogs import changelog_of
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib.errors import RelstateError
from tests.epoch.scripts import Script


@pytest.fixture
def changed(spark: SparkSession, tmp_path: Path) -> tuple[Script, str]:
    """A view over changes of three keys, and the table of changes, which takes deletions."""
    script = Script(spark, tmp_path / "warehouse")
    script.run("CREATE TABLE u (k INT, x STRING, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert')")
    script.run("INSERT INTO u VALUES (1, 'a'); INSERT INTO u SELECT /*+ COALESCE(1) */ * FROM VALUES (2, 'b'), (3, 'c')")
    script.run("INSERT INTO u VALUES (1, 'newer')")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT k, x FROM u")
    assert script.rows("SELECT * FROM v") == [(1, "newer"), (2, "b"), (3, "c")]
    table = f"delta.`{script.warehouse.read().sources[changelog_of('u')].path}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    return script, table


def _rebuilt(spark: SparkSession, script: Script) -> list[tuple]:
    list(EpochRunner(spark, script.warehouse).run(full_refresh=["u"]))
    script.verify()
    return script.rows("SELECT * FROM v")


def test_a_row_that_was_alone_in_its_file_is_gone(spark: SparkSession, changed: tuple[Script, str]) -> None:
    script, table = changed
    spark.sql(f"DELETE FROM {table} WHERE x = 'newer'")
    assert _rebuilt(spark, script) == [(1, "a"), (2, "b"), (3, "c")]
    spark.sql(f"INSERT OVERWRITE {table} VALUES (1, 'only')")
    assert _rebuilt(spark, script) == [(1, "only")]


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_where_others_of_its_file_are_left_the_order_is_not_known(
    spark: SparkSession, changed: tuple[Script, str], vectors: str
) -> None:
    script, table = changed
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')")
    before = spark.sql(f"DESCRIBE HISTORY {table}").agg({"version": "max"}).first()[0]
    spark.sql(f"DELETE FROM {table} WHERE k = 2")
    with pytest.raises(RelstateError, match=r"\(DELETE\) updated or deleted rows.*'source.order'"):
        _rebuilt(spark, script)
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {before}")
    assert _rebuilt(spark, script) == [(1, "newer"), (2, "b"), (3, "c")]


def test_what_optimize_put_together_is_not_deleted_from_unseen(spark: SparkSession, changed: tuple[Script, str]) -> None:
    script, table = changed
    spark.sql(f"OPTIMIZE {table}")
    assert _rebuilt(spark, script) == [(1, "newer"), (2, "b"), (3, "c")]
    spark.sql(f"DELETE FROM {table} WHERE k = 2")
    with pytest.raises(RelstateError, match="the order of the rows is not known"):
        _rebuilt(spark, script)
