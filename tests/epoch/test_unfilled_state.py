"""State of some nodes of a view's plan that the next epoch fills."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.engine.workloads import Workload, session_for
from relstate_dagster.jobs.plan.nodes import Aggregate, PlanNode
from relstate_dagster.jobs.planner.query_settings import meaning_of
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.targets.chain import epoch_txn_version
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.state_lib.compaction import ClosedRows, rewrite_tables
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from tests.epoch.scripts import Script

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE TABLE r (k INT, g INT, PRIMARY KEY (k));
INSERT INTO t SELECT id, id % 10, id FROM range(100);
INSERT INTO r SELECT id, id % 12 FROM range(20);
CREATE MATERIALIZED VIEW tops AS
    SELECT r.k, a.n, a.top FROM r LEFT JOIN (SELECT g, count(*) AS n, max(v) AS top FROM t GROUP BY g) AS a ON r.g = a.g;
"""
_CHANGES = """
UPDATE t SET v = v + 1000 WHERE k < 3;
DELETE FROM t WHERE k = 99;
INSERT INTO r VALUES (100, 4);
DELETE FROM r WHERE k = 0
"""


def _leave_unfilled(spark: SparkSession, script: Script, kind: type[PlanNode], *, drops: bool = True) -> None:
    """Empty the state of nodes of a kind; the next epoch fills it."""
    warehouse = script.warehouse
    view = warehouse.read().views["tops"]
    nodes = [found for found in view.planned.stateful.nodes if isinstance(found.node, kind)]
    tables = [table.table_id for found in nodes for table in found.tables]
    assert tables
    if drops:
        files = StateFiles(warehouse.state_path(view))
        store = StateStore(session_for(spark, meaning_of(spark), Workload.SMALL), files, view.tables)
        assert view.last_epoch is not None
        done = rewrite_tables(
            store,
            tables,
            version=files.table.latest().version(),
            app_id=view.application,
            txn_version=epoch_txn_version(view.last_epoch) + 1,
            expired=dict.fromkeys(tables, ClosedRows(F.lit(True))),
        )
        assert done is not None
    unfilled = replace(view, unfilled=tuple(found.id for found in nodes))
    warehouse.catalog.update(lambda state: state.with_view(unfilled))


def _run(spark: SparkSession, script: Script) -> ViewReport:
    (report,) = EpochRunner(spark, script.warehouse).run(["tops"])
    return report


def test_an_epoch_fills_them_and_the_others_go_on(spark: SparkSession, script: Script) -> None:
    script.begin(_SETUP)
    script.run(_CHANGES)
    _leave_unfilled(spark, script, Aggregate)
    ((explained,),) = script.rows("EXPLAIN MATERIALIZED VIEW tops")
    report = _run(spark, script)
    reads = [stage.split(",")[0] for stage in report.stages if stage.startswith("read ")]
    assert reads == ["read r: 2 file(s) with the changes", "read t: 2 file(s) with the changes", "read t: all rows"]
    (filling,) = (line for line in report.stages if line.startswith("fill: "))
    assert filling in explained
    assert (report.rows_inserted, report.rows_deleted) == (7, 7), "rows of the four groups that changed, and of r"
    assert not report.is_backfill
    script.verify()
    assert script.warehouse.read().views["tops"].unfilled == ()
    script.run("UPDATE t SET v = v + 1000 WHERE k IN (7, 8); INSERT INTO r VALUES (101, 8)")
    assert not any(line.startswith("fill: ") for line in _run(spark, script).stages)
    script.verify()


def test_state_that_has_rows_is_not_filled(spark: SparkSession, script: Script) -> None:
    script.begin(_SETUP)
    script.run(_CHANGES)
    _leave_unfilled(spark, script, Aggregate, drops=False)
    with pytest.raises(Exception, match=r"a part of its state cannot be filled: state tables .* have rows"):
        _run(spark, script)
