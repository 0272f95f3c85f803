"""Epochs have one instant: views that depend on the time, from the clock to the published table."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch import view_run
from tests.epoch.clocks import SetClock
from tests.epoch.scripts import Script


@pytest.fixture
def timed(spark: SparkSession, tmp_path: Path, clock: SetClock) -> Script:
    script = Script(spark, tmp_path / "warehouse", clock)
    script.run(
        """
        CREATE TABLE ev (k INT, g INT, ts TIMESTAMP, PRIMARY KEY (k));
        INSERT INTO ev VALUES (1, 1, TIMESTAMP '2024-04-30 13:00:00Z'), (2, 1, TIMESTAMP '2024-05-01 11:00:00Z'),
                              (3, 2, TIMESTAMP '2024-05-01 18:00:00Z'), (4, 2, NULL);
        CREATE MATERIALIZED VIEW latest AS SELECT k, g FROM ev WHERE ts > now() - INTERVAL 1 DAY;
        CREATE MATERIALIZED VIEW groups AS SELECT g, count(*) AS n FROM latest GROUP BY g;
        CREATE MATERIALIZED VIEW plain AS SELECT g, count(*) AS n FROM ev GROUP BY g;
        CREATE MATERIALIZED VIEW stamped AS SELECT k, now() AS at, ts < current_date() AS old FROM ev;
        """
    )
    return script


def _jobs(spark: SparkSession, run: EpochRunner, views: list[str]) -> int:
    """Spark jobs of an epoch over some views."""
    # Counted by the scheduler: what the UI lists ends at a thousand jobs, which a whole test run has.
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    list(run.run(views))
    return int(scheduler.numTotalJobs() - before)


def test_views_follow_the_clock_and_one_instant_holds_for_all(timed: Script, clock: SetClock) -> None:
    strategies = {name: view.strategy for name, view in timed.warehouse.read().views.items()}
    assert strategies == {"latest": "incremental", "groups": "incremental", "plain": "incremental", "stamped": "full"}
    assert timed.rows("SELECT k FROM latest") == [(1,), (2,), (3,)]
    clock.move(hours=2)
    asked = clock.asked
    timed.run("REFRESH")
    assert clock.asked == asked + 1
    assert timed.rows("SELECT k FROM latest") == [(2,), (3,)]
    assert timed.rows("SELECT * FROM groups") == [(1, 1), (2, 1)]
    assert timed.rows("SELECT DISTINCT at = TIMESTAMP '2024-05-01 14:00:00Z' FROM stamped") == [(True,)]
    # Verified later, and still at the instant of the epoch.
    clock.move(days=3)
    timed.verify()
    timed.run("INSERT INTO ev VALUES (5, 3, TIMESTAMP '2024-05-04 10:00:00Z'); DELETE FROM ev WHERE k = 1; REFRESH")
    assert timed.rows("SELECT * FROM groups") == [(3, 1)]
    timed.verify()


def test_an_epoch_in_which_nothing_crosses_writes_nothing(timed: Script, clock: SetClock) -> None:
    before = timed.warehouse.read()
    clock.move(minutes=1)
    reports = {r.view: r for r in timed.session._runner.run(["latest", "groups", "plain"])}
    assert all(report.skipped for report in reports.values())
    after = timed.warehouse.read()
    assert after.versions_at("latest") == before.versions_at("latest")
    # The view has reached the new instant all the same: the next epoch looks from there.
    assert after.epochs[after.views["latest"].last_epoch].instant == clock.now
    clock.move(hours=2)
    timed.run("REFRESH")
    assert timed.rows("SELECT k FROM latest") == [(2,), (3,)]
    timed.verify()


def test_views_without_time_stay_free_of_jobs(spark: SparkSession, timed: Script, clock: SetClock) -> None:
    runner = timed.session._runner
    epoch = timed.warehouse.read().next_epoch
    clock.move(minutes=30)
    assert _jobs(spark, runner, ["plain"]) == 0
    assert timed.warehouse.read().next_epoch == epoch
    # With a view that follows the time beside it, the range between the two instants is looked at, in one job.
    assert _jobs(spark, runner, ["plain", "latest"]) == 1


def test_recovery_keeps_the_instant_of_the_epoch(timed: Script, clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock.move(hours=2)
    begun = clock.now

    # Those that read no other view have all committed: what has not, a run that is stopped cancels.
    committed = threading.Barrier(2)

    def publish(*_args: object, **_kwargs: object) -> None:
        committed.wait(120)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(view_run, "publish", publish)
        with pytest.raises(KeyboardInterrupt):
            timed.run("REFRESH VIEW latest, groups, stamped")
    (claim,) = timed.warehouse.read().claims.values()
    running = claim.epoch
    assert running.instant == begun
    clock.move(days=2)
    # The next run finishes that epoch at its instant, then makes one of its own.
    reports = [r for r in timed.session._runner.run(["latest"]) if r.view == "latest"]
    assert [r.rows_deleted for r in reports] == [1, 2]
    state = timed.warehouse.read()
    assert state.epochs[running.epoch].instant == begun
    assert timed.rows("SELECT DISTINCT at FROM stamped") == [(begun.replace(tzinfo=None),)]
    timed.verify()
