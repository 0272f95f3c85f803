"""Many wide views in one process: what a finished view leaves behind in the driver's heap."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import live_heap
from benchmarks.scenarios.many_views import SOURCES, changes, queries, rows
from relstate_dagster.jobs.epoch.runner import EpochRunner
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
