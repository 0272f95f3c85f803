"""A backfill over more than the driver holds: what it comes to decides who commits it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.lake.log import DeltaLog, commit_info
from tests.epoch.scripts import Script
from tests.sizes import Resized

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE TABLE m (g INT, s STRING);
INSERT INTO t SELECT id, id % 3, id FROM range(50);
INSERT INTO m VALUES (0, 'a'), (0, 'a'), (1, 'b');
CREATE MATERIALIZED VIEW sums AS SELECT g, count(*) AS n, sum(v) AS v FROM t GROUP BY g;
CREATE MATERIALIZED VIEW pairs AS SELECT t.k, m.s FROM t LEFT JOIN m ON t.g = m.g;
CREATE MATERIALIZED VIEW empty AS SELECT g, count(*) AS n FROM t WHERE v > 1000 GROUP BY g;
"""
_CHANGES = "UPDATE t SET g = g + 1, v = v * 10 WHERE k < 4; DELETE FROM t WHERE k = 11; INSERT INTO m VALUES (0, 'a'); REFRESH"


@pytest.mark.parametrize(("few_bytes", "by_spark"), [(2_000, {"pairs"}), (0, {"sums", "pairs"})])
def test_few_rows_are_committed_by_the_driver_and_others_by_spark(
    spark: SparkSession, tmp_path: Path, resized: Resized, few_bytes: int, by_spark: set[str]
) -> None:
    resized(driver_backfill_bytes=0)
    resized(driver_commit_bytes=few_bytes)
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP)
    assert {name for name in ("sums", "pairs", "empty") if _committed_by_spark(script, name)} == by_spark
    script.verify()
    script.run(_CHANGES)
    script.verify()


def _committed_by_spark(script: Script, view: str) -> bool:
    """Who made the first commit of rows to a view's state."""
    path = script.warehouse.state_path(script.warehouse.read().views[view])
    return "Spark" in str(commit_info(DeltaLog(path).commit(1)).get("engineInfo"))


def test_rows_that_are_too_many_for_the_driver_are_held_by_spark(spark: SparkSession, tmp_path: Path, resized: Resized) -> None:
    """Each change has more readers than one, and more rows than may be sent to tasks."""
    resized(driver_held_bytes=1)
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP)
    script.run("""
        CREATE MATERIALIZED VIEW itself AS
            SELECT a.k, count(*) AS n FROM t a JOIN t b ON a.g = b.g
            WHERE EXISTS (SELECT * FROM m WHERE m.g = a.g) GROUP BY a.k;
        CREATE MATERIALIZED VIEW first_ones AS SELECT k, v FROM t ORDER BY v DESC, k LIMIT 3;
        CREATE MATERIALIZED VIEW extremes AS SELECT g, min(v) AS lo, count(DISTINCT v) AS n FROM t GROUP BY g;
    """)
    for _ in range(2):
        script.run(_CHANGES)
        script.verify()
