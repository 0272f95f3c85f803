"""Vnode counts grow with what a state table holds, beside readers, and a rewrite puts every row where it belongs."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib.constants import TABLE_ID, VNODE
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_schema import StateTableDesc
from relstate_dagster.state_lib.vnode import table_vnode
from tests.epoch.scripts import Script
from tests.sizes import Resized

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
INSERT INTO t SELECT id, id % 40, id FROM range(400);
CREATE MATERIALIZED VIEW tops AS SELECT g, max(v) AS top, count(*) AS n FROM t GROUP BY g;
CREATE MATERIALIZED VIEW total AS SELECT sum(top) AS s FROM tops;
"""


def _misplaced(store: StateStore, desc: StateTableDesc, version: int | None) -> int:
    """Rows of a table that are in another vnode than its count now says."""
    rows = store.stored([desc.table_id], version)
    slots = store.slots_of(desc.table_id)
    own = rows.selectExpr(VNODE, *(slots.of(column.name).read() for column in desc.schema.columns))
    return own.where(F.col(VNODE) != table_vnode(desc.schema, desc.vnode_count)).count()


def test_counts_double_and_readers_go_on(spark: SparkSession, tmp_path: Path, resized: Resized) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_SETUP + "REFRESH;")
    warehouse = Warehouse(tmp_path / "warehouse")
    assert {t.vnode_count for view in warehouse.read().views.values() for t in view.tables} == {1}

    # As if the tables had come to some hundred megabytes.
    resized(vnode_bytes=2_000)
    script.run("UPDATE t SET v = v + 1 WHERE k % 3 = 0; REFRESH")
    counts = {t.schema.label: t.vnode_count for t in warehouse.read().views["tops"].tables}
    assert max(counts.values()) >= 4
    singletons = [t for t in warehouse.read().views["total"].tables if not t.schema.distribution_key]
    assert singletons
    assert {t.vnode_count for t in singletons} == {1}, "a table without a distribution key has nothing to divide"

    # Rows of before stay where they are, new ones go to the new vnodes, and views see them all.
    script.run("UPDATE t SET v = v - 3 WHERE k % 5 = 0; DELETE FROM t WHERE k % 7 = 0; REFRESH")
    script.verify()
    view = warehouse.read().views["tops"]
    store = StateStore(spark, StateFiles(warehouse.state_path(view)), view.tables)
    grown = next(t for t in view.tables if t.vnode_count >= 4)
    assert {f.partition[VNODE] for f in store.files.at(None) if f.partition[TABLE_ID] == grown.table_id} > {0}
    assert _misplaced(store, grown, None) > 0

    # A rewrite moves them; a reader of the version before still finds its rows.
    before = store.files.table.latest().version()
    (report, _) = EpochRunner(spark, warehouse).compact()
    assert grown.table_id in report.rewritten
    assert _misplaced(StateStore(spark, StateFiles(store.path), view.tables), grown, None) == 0
    assert _misplaced(store, grown, before) > 0

    # A rebuild starts with the counts that the tables had come to.
    resized(vnode_bytes=1_000_000)
    list(EpochRunner(spark, warehouse).run(full_refresh=["tops"]))
    script.verify()
    view = warehouse.read().views["tops"]
    rebuilt = next(t for t in view.tables if t.schema == grown.schema)
    assert rebuilt.vnode_count == grown.vnode_count
    assert _misplaced(StateStore(spark, StateFiles(warehouse.state_path(view)), view.tables), rebuilt, None) == 0
