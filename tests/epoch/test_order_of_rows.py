"""Aggregates of which the result depends on the order of rows: what an epoch takes back is what an earlier one gave."""

from __future__ import annotations

import random
from pathlib import Path

from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner
from tests.epoch.scripts import Script

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, x DOUBLE, PRIMARY KEY (k));
CREATE MATERIALIZED VIEW by_group AS
SELECT g, sum(x) AS s, avg(x) AS a, max_by(v, k) AS b, stddev(x) AS d, corr(x, v) AS c,
    sort_array(array_agg(x)) AS l
FROM t GROUP BY g;
CREATE MATERIALIZED VIEW of_all AS SELECT sum(x) AS s, skewness(x) AS d, max(v) AS m FROM t;
CREATE MATERIALIZED VIEW over AS
SELECT count(*) AS n, count(DISTINCT s) AS s, count(DISTINCT a) AS a, count(DISTINCT d) AS d, count(DISTINCT c) AS c,
    count(DISTINCT l) AS l
FROM by_group;
CREATE MATERIALIZED VIEW over_all AS SELECT count(*) AS n, count(DISTINCT struct(s, d)) AS values FROM of_all;
"""


def test_sums_of_floating_point_numbers_are_taken_back_to_the_last_bit(spark: SparkSession, tmp_path: Path) -> None:
    """Added up in another order they are another number: views above would keep both."""
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP)
    some = random.Random(1)
    for epoch in range(4):
        keys = range(60 * epoch, 60 * (epoch + 1))
        rows = ", ".join(f"({k}, {some.randrange(3)}, {some.randrange(9)}, {some.uniform(-1e3, 1e9)}D)" for k in keys)
        script.run(f"INSERT INTO t VALUES {rows}; DELETE FROM t WHERE k = {epoch * 3}; REFRESH")
        assert script.rows("SELECT * FROM over") == [(3, 3, 3, 3, 3, 3)]
        assert script.rows("SELECT * FROM over_all") == [(1, 1)]
    # Compaction raises where a row was taken back that was never there.
    list(EpochRunner(spark, script.warehouse).compact())
    script.verify()
