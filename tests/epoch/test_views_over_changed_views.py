"""A view that is built over one whose log has rows that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.operators import materialize, window
from tests.epoch.scripts import Script

_CHANGED = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
INSERT INTO t SELECT id, id % 3, id FROM range(9);
CREATE MATERIALIZED VIEW lower AS SELECT k, g, v + 1 AS v FROM t;
UPDATE t SET v = 10 * v WHERE k < 5; REFRESH;
UPDATE t SET v = v / 10 WHERE k < 3; DELETE FROM t WHERE k = 7; REFRESH;
"""
_OVER = """
CREATE MATERIALIZED VIEW doubled AS SELECT k, v * 2 AS w FROM {0};
CREATE MATERIALIZED VIEW pairs AS SELECT a.k, b.k AS other, a.v FROM {0} a JOIN {0} b ON a.g = b.g;
CREATE MATERIALIZED VIEW outer_pairs AS SELECT a.k, a.v, b.v AS w FROM {0} a LEFT JOIN {0} b ON a.k = b.v;
CREATE MATERIALIZED VIEW running AS SELECT k, sum(v) OVER (PARTITION BY g ORDER BY k) AS s FROM {0};
CREATE MATERIALIZED VIEW steps AS SELECT k, lag(v) OVER (ORDER BY k) AS l FROM {0};
CREATE MATERIALIZED VIEW first_ones AS SELECT k, v FROM {0} ORDER BY v DESC, k LIMIT 3;
CREATE MATERIALIZED VIEW lists AS SELECT g, sort_array(collect_list(v)) AS vs, max(v) AS hi, min(k) AS lo FROM {0} GROUP BY g;
"""


def test_views_over_a_view_that_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_CHANGED)
    script.run(_OVER.format("lower"))
    script.verify()
    script.run("UPDATE t SET v = v + 1, g = g + 1 WHERE k % 2 = 0; DELETE FROM t WHERE k = 0; REFRESH")
    script.verify()


@pytest.mark.parametrize(("relation", "sums"), [("t", False), ("fresh", False), ("lower", True)])
def test_a_build_sums_rows_only_where_some_may_cancel(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relation: str, *, sums: bool
) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_CHANGED)
    script.run("CREATE MATERIALIZED VIEW fresh AS SELECT k, g, v FROM t")
    summed: list[str] = []
    for module in (materialize, window):
        consolidate = module.consolidate

        def noted(df: object, columns: object, consolidate: object = consolidate) -> object:
            summed.append(str(columns))
            return consolidate(df, columns)  # type: ignore[operator]

        monkeypatch.setattr(module, "consolidate", noted)
    script.run(f"CREATE MATERIALIZED VIEW running AS SELECT k, sum(v) OVER (PARTITION BY g ORDER BY k) AS s FROM {relation}")
    assert bool(summed) is sums
    script.run("UPDATE t SET v = v + 1 WHERE k = 1; REFRESH")
    assert summed, "changes are summed"
    script.verify()
