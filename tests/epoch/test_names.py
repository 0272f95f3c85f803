"""Columns may have names that begin as ours do; the three that a change set or a view needs for itself are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.errors import PlanError
from tests.epoch.scripts import Script

# What connectors call their columns, and what operators call theirs.
_SETUP = """
CREATE TABLE t (`_row` INT, `_count` INT, `_op` STRING, `_epoch` INT, `_old_sum_0` INT, PRIMARY KEY (`_row`));
CREATE TABLE u (`_row` INT, `_count` INT, `_op` STRING, PRIMARY KEY (`_row`));
INSERT INTO t SELECT id, id % 4, 'i' || id % 2, id, id % 3 FROM range(20);
INSERT INTO u SELECT id, id % 3, 'j' FROM range(10);
CREATE MATERIALIZED VIEW sums AS
  SELECT `_count`, `_old_sum_0` AS `_op`, sum(`_epoch`) AS `_state_weight`, max(`_row`) AS `_n`, count(DISTINCT `_op`) AS `_d`
  FROM t GROUP BY `_count`, `_old_sum_0`;
CREATE MATERIALIZED VIEW joined AS
  SELECT t.`_row`, u.`_row` AS `_other`, t.`_op`, u.`_count` FROM t LEFT JOIN u ON t.`_count` = u.`_row`;
CREATE MATERIALIZED VIEW ranked AS SELECT `_row`, rank() OVER (PARTITION BY `_op` ORDER BY `_epoch`) AS `_rank` FROM t;
CREATE MATERIALIZED VIEW over AS SELECT `_op`, count(*) AS `_count` FROM sums WHERE `_state_weight` > 3 GROUP BY `_op`;
"""


def test_columns_with_names_like_ours(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP)
    script.verify()
    script.run("UPDATE t SET `_epoch` = `_epoch` + 1, `_op` = NULL WHERE `_row` < 5; DELETE FROM u WHERE `_row` = 2; REFRESH")
    script.verify()
    assert script.rows("SELECT `_op`, `_count` FROM joined WHERE `_row` = 4") == [(None, 0)]


@pytest.mark.parametrize("name", ["_weight", "_key", "_row_id", "a``b"])
def test_columns_of_views_that_are_ours(spark: SparkSession, tmp_path: Path, name: str) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k))")
    error = script.error(f"CREATE MATERIALIZED VIEW a AS SELECT k, v AS `{name}` FROM t")
    assert isinstance(error, PlanError)
    assert "column " + name.replace("``", "`") in str(error)
    assert not script.warehouse.read().views
