"""``state.ttl``: state of which nothing has been heard for that long is gone, at a cost and with a result that are told."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, sync_project
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.state_lib.constants import TABLE_ID
from relstate_dagster.state_lib.state_files import StateFiles
from tests.epoch.killed import in_process
from tests.epoch.scripts import Script
from tests.sizes import Resized

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE MATERIALIZED VIEW sums TBLPROPERTIES ('state.ttl' = '1 day') AS SELECT g, sum(v) AS s, max(v) AS top FROM t GROUP BY g;
CREATE MATERIALIZED VIEW over AS SELECT g, s FROM sums WHERE s > 0;
"""


class _Clock:
    def __init__(self) -> None:
        self.now = datetime(2024, 5, 1, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def pass_hours(self, hours: int) -> None:
        self.now += timedelta(hours=hours)


def _state_rows(script: Script, view: str) -> int:
    """Rows in all state tables of a view but its own."""
    entry = script.warehouse.read().views[view]
    own = {table.table_id for table in entry.tables[:-1]}
    return sum(f.rows for f in StateFiles(script.warehouse.state_path(entry)).at(None) if f.partition[TABLE_ID] in own)


def _days(script: Script, clock: _Clock, first: int, last: int) -> None:
    """Each half a day a new group."""
    for n in range(first, last):
        script.run(f"INSERT INTO t VALUES ({n}, {n}, {n}); REFRESH")
        clock.pass_hours(12)


def test_state_of_what_is_not_touched_any_more_goes_and_what_it_made_stays(spark: SparkSession, tmp_path: Path) -> None:
    clock = _Clock()
    script = Script(spark, tmp_path / "warehouse", clock)
    script.run(_SETUP)
    ((explained,),) = script.rows("EXPLAIN MATERIALIZED VIEW sums")
    assert "join and aggregate state expires after 1 day, so that results are not exact" in explained
    _days(script, clock, 0, 8)
    # Three tables of the last days' groups: those of a day, and of half a day more, until the next epoch.
    assert _state_rows(script, "sums") <= 3 * 4
    assert script.rows("SELECT g, s FROM sums") == [(n, n) for n in range(8)]
    script.verify()
    # What is gone can no longer be retracted, and starts again.
    script.run("DELETE FROM t WHERE k = 1; REFRESH")
    assert (1, 1) in script.rows("SELECT g, s FROM sums")
    script.run("INSERT INTO t VALUES (20, 2, 5), (71, 7, 1); REFRESH")
    assert script.rows("SELECT g, s FROM sums WHERE g IN (2, 7)") == [(2, 5), (7, 8)]
    assert script.rows("SELECT * FROM over") == [(n, s) for n, s in script.rows("SELECT g, s FROM sums") if s > 0]
    (result,) = script.run("VERIFY sums")
    assert result.rows == [("sums", False, 1, 2, script.warehouse.read().views["sums"].last_epoch)]
    script.run("VERIFY over")
    # Without the property nothing more expires, and what has is still known to be gone.
    without = _SETUP.replace(" TBLPROPERTIES ('state.ttl' = '1 day')", "")
    sync_project(spark, script.warehouse, build_project(parse_text(without)))
    assert script.warehouse.read().views["sums"].state_ttl is None
    script.run("DELETE FROM t WHERE k = 3; REFRESH")
    assert (3, 3) in script.rows("SELECT g, s FROM sums")


def test_a_run_that_dies_after_it_has_expired_state(spark: SparkSession, tmp_path: Path, jvm: SparkSession | None) -> None:
    """The next one knows that something may be gone, though the epoch in which it went was never completed."""
    clock = _Clock()
    script = Script(spark, tmp_path / "warehouse", clock)
    script.run(_SETUP)
    _days(script, clock, 0, 4)
    before = _state_rows(script, "sums")
    # Its clock is that of today: all of it is old.
    killed = in_process("INSERT INTO t VALUES (9, 9, 9); REFRESH", script.warehouse.root, "before_complete", jvm)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert _state_rows(script, "sums") < before + 3, "something has expired"
    clock.now = datetime.now(timezone.utc)
    script.run("DELETE FROM t WHERE k IN (0, 3); REFRESH")
    assert script.rows("SELECT g FROM sums") == [(0,), (1,), (2,), (9,)]
    script.run("VERIFY over")


def test_large_state_expires_by_compaction_alone(spark: SparkSession, tmp_path: Path, resized: Resized) -> None:
    resized(driver_compaction_bytes=0)
    clock = _Clock()
    script = Script(spark, tmp_path / "warehouse", clock)
    script.run(_SETUP)
    _days(script, clock, 0, 5)
    assert _state_rows(script, "sums") == 5
    runner = EpochRunner(spark, script.warehouse)
    assert [report.view for report in runner.compact(["sums"]) if report.rewritten] == ["sums"]
    assert _state_rows(script, "sums") == 2
    script.run("DELETE FROM t WHERE k IN (0, 4); REFRESH")
    assert [g for (g,) in script.rows("SELECT g FROM sums")] == [0, 1, 2, 3]


@pytest.mark.parametrize("ttl", ["soon", "0 days", "3", "-1 days", "99999999999 weeks"])
def test_a_time_to_live_that_is_none(script: Script, ttl: str) -> None:
    error = script.error(f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ('state.ttl' = '{ttl}') AS SELECT 1 AS one")
    assert "materialized view v: 'state.ttl'" in str(error)
    assert "write it as in '30 days'" in str(error)
    assert not script.warehouse.read().views
