"""A run that was thought dead, or that no lock kept out, goes on beside another one: nothing is counted twice or lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Warehouse
from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.inspect.health import problems_of_tables
from relstate_dagster.jobs.targets import delta_table
from relstate_dagster.jobs.view_epoch import view_epoch
from relstate_dagster.state_lib.errors import RelstateError
from tests.epoch.scripts import Script

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
INSERT INTO t SELECT id, id % 3, id FROM range(12);
CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g;
CREATE MATERIALIZED VIEW above AS SELECT s FROM sums WHERE n > 1;
UPDATE t SET v = v + 100 WHERE k < 6;
"""
_PLACES = ("after_begin", "before_state_commit", "after_state_commit", "before_publish", "before_complete")


@pytest.mark.parametrize(
    ("place", "by_spark"), [*((place, False) for place in _PLACES), ("before_state_commit", True), ("before_publish", True)]
)
def test_of_two_runs_without_a_lock_one_completes_and_the_other_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, by_spark: bool
) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP)
    monkeypatch.setattr(Claims, "is_dead", lambda *_: True)
    monkeypatch.setenv("RELSTATE_LEASE_SECONDS", "0")
    if by_spark:
        monkeypatch.setattr(view_epoch.StateStore, "is_plain", property(lambda _: False))
        monkeypatch.setattr(delta_table, "written_by_driver", lambda _: False)
    other, met = EpochRunner(spark, Warehouse(script.warehouse.root)), []

    def reached(now: str) -> None:
        if now == place and not met:
            met.append(now)
            script.run("UPDATE t SET v = v + 1000 WHERE k > 8; DELETE FROM t WHERE k = 0")
            list(other.run())

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reached", reached)
        with pytest.raises(RelstateError, match=r"took this one for dead|nothing was lost"):
            list(EpochRunner(spark, script.warehouse).run())
    assert met == [place]
    script.verify()
    script.run("REFRESH; VERIFY")
    state = script.warehouse.read()
    assert not state.claims
    assert all(view.problem is None for view in state.views.values())
    expected = spark.read.format("delta").load(script.warehouse.source_path("t")).groupBy("g").sum("v").collect()
    assert script.rows("SELECT g, s FROM sums") == sorted((row[0], row[1]) for row in expected)
    # The run that was late has not undone what the other one committed: there is something to build on.
    assert not [problem for view in state.views.values() for problem in problems_of_tables(script.warehouse, state, view)]
    script.run("UPDATE t SET v = v + 7 WHERE k = 4; DELETE FROM t WHERE k = 7; REFRESH; VERIFY")
