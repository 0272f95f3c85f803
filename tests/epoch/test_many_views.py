"""The heap that many wide views leave behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import live_heap
from benchmarks.scenarios.many_views import SOURCES, changes, queries, rows
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch.view_run import ViewRuns
from tests.epoch.scripts import Script

_VIEWS, _TRADES = 60, 300


def test_the_heap_does_not_grow_with_the_views(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(SOURCES + rows(0, _TRADES))
    after_ten = 0.0
    for number, (name, query) in enumerate(queries(_VIEWS), start=1):
        script.run(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        if number == 10:
            after_ten = live_heap(spark)
    script.run(changes(_TRADES, 10))
    reports = list(EpochRunner(spark, script.warehouse).run())
    assert sum(report.rows_inserted > 0 for report in reports) == _VIEWS
    assert live_heap(spark) < 1.5 * after_ten
    # A view of each kind; all of them would take minutes.
    script.run(f"VERIFY {', '.join(name for name, _ in queries(5))}")
    script.session.close()


def test_runs_go_on_with_the_same_sessions(spark: SparkSession, script: Script) -> None:
    """Each session holds on to what it has computed last."""
    script.run("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1)")
    for name in ("a", "b", "c"):
        script.run(f"CREATE MATERIALIZED VIEW {name} AS SELECT '{name}' AS n, sum(v) AS s FROM t")
    runs = ViewRuns(spark, script.warehouse)
    counts, pools = list[int](), list[ThreadPoolExecutor]()
    for n in range(4):
        script.run(f"UPDATE t SET v = {n + 2}")
        # As requests come to a server, in another thread each. The old threads stay: a new one would get their numbers.
        pools.append(ThreadPoolExecutor(1))
        pools[-1].submit(lambda: list(EpochRunner(spark, script.warehouse, runs=runs).run())).result()
        counts.append(len(runs.pool.all()))
    for pool in pools:
        pool.shutdown()
    assert counts[0] <= 4, "for three views at a time, and the run's own steps"
    assert counts == [counts[0]] * 4
    script.verify()
