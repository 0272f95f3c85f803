"""Compaction: state means the same afterwards, epochs go on over it, and none is lost to it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.targets.chain import epoch_txn_version
from relstate_dagster.state_lib.compaction import merge_small_runs, rewrite_tables
from relstate_dagster.state_lib.constants import TABLE_ID
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_schema import StateKind
from tests.epoch.scripts import Script, run_ahead
from tests.sizes import Resized

_SETUP = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
CREATE TABLE d (g INT, name STRING, PRIMARY KEY (g));
INSERT INTO t SELECT id, id % 4, id FROM range(40);
INSERT INTO d VALUES (0, 'a'), (1, 'b'), (2, 'c');
CREATE MATERIALIZED VIEW a AS
  SELECT d.name, count(*) AS n, sum(t.v) AS total, max(t.v) AS top, collect_set(t.k % 3) AS s
  FROM t LEFT JOIN d ON t.g = d.g GROUP BY d.name;
CREATE MATERIALIZED VIEW b AS SELECT name, total FROM a WHERE n > 1;
"""


def _epochs(script: Script, numbers: range) -> None:
    for n in numbers:
        # One statement for insertions, updates and a deletion: a Delta commit by Spark is most of such a test's time.
        script.run(
            f"MERGE INTO t USING (SELECT id AS k FROM range({101 + n}) WHERE id % 5 = {n % 5} OR id IN ({n}, {100 + n})) c "
            f"ON t.k = c.k WHEN MATCHED AND c.k = {n} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET v = v + {n}, g = (g + 1) % 4 "
            f"WHEN NOT MATCHED AND c.k = {100 + n} THEN INSERT (k, g, v) VALUES (c.k, {n % 5}, {n}); REFRESH"
        )


def _store(spark: SparkSession, warehouse: Warehouse, name: str) -> StateStore:
    view = warehouse.read().views[name]
    return StateStore(spark, StateFiles(warehouse.state_path(view)), view.tables)


def test_many_epochs_over_compacted_state(spark: SparkSession, tmp_path: Path, resized: Resized) -> None:
    resized(compaction_spare_rows=20)
    resized(runs_per_partition=3)
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP)
    _epochs(script, range(5))
    script.verify()
    warehouse = Warehouse(tmp_path / "warehouse")
    view = warehouse.read().views["a"]
    assert view.merged_rows, "the policy has rewritten tables on its own"
    files = StateFiles(warehouse.state_path(view)).at(None)
    by_table = {t.table_id: sum(f.partition[TABLE_ID] == t.table_id for f in files) for t in view.tables}
    assert max(by_table.values()) <= 4

    reports = list(EpochRunner(spark, warehouse).compact())
    assert [r.view for r in reports] == ["a", "b"]
    assert reports[0].files_after == len([t for t in by_table if by_table[t]]) < reports[0].files_before
    store = _store(spark, warehouse, "a")
    assert store.stored([t.table_id for t in view.tables]).where("weight < 0").count() == 0
    _epochs(script, range(20, 22))
    script.verify()


def test_an_epoch_that_commits_during_a_rewrite_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP)
    _epochs(script, range(2))
    warehouse = Warehouse(tmp_path / "warehouse")
    view = warehouse.read().views["a"]
    store = _store(spark, warehouse, "a")
    read_at = store.files.table.latest().version()
    assert view.last_epoch is not None
    _epochs(script, range(2, 3))
    for by_driver in (True, False):
        tables = [t.table_id for t in view.tables]
        fence = {"app_id": view.application, "txn_version": epoch_txn_version(view.last_epoch) + 1}
        assert rewrite_tables(store, tables, version=read_at, **fence, by_driver=by_driver) is None
        script.verify()
    # What only puts files together conflicts with nothing.
    merge_small_runs(store.files.table)
    _epochs(script, range(3, 4))
    script.verify()


def test_spark_rewrites_what_the_driver_cannot_hold(spark: SparkSession, tmp_path: Path, resized: Resized) -> None:
    resized(driver_compaction_bytes=0)
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP)
    _epochs(script, range(2))
    warehouse = Warehouse(tmp_path / "warehouse")
    (report, _) = EpochRunner(spark, warehouse).compact()
    assert report.rewritten
    assert (
        _store(spark, warehouse, "a")
        .stored([t.table_id for t in warehouse.read().views["a"].tables])
        .where("weight < 0")
        .isEmpty()
    )
    _epochs(script, range(2, 4))
    script.verify()


def test_a_view_that_lags_behind_still_finds_the_change_log(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP)
    warehouse = Warehouse(tmp_path / "warehouse")
    runner = EpochRunner(spark, warehouse)
    run_ahead(script, runner, "a", epochs=3)
    assert warehouse.read().views["b"].last_epoch < warehouse.read().views["a"].last_epoch
    list(runner.run())
    script.verify()


def _without_rows(table: Path, file: str) -> None:
    """Empty a data file in place; the log knows its new size, or Spark would look for its footer in the wrong place."""
    path = table / file
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.slice(0, 0), path)
    for checksum in table.glob("**/.*.crc"):
        checksum.unlink()
    for commit in (table / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in lines:
            if action.get("add", {}).get("path") == file:
                action["add"]["size"] = path.stat().st_size
        commit.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize("by_driver", [True, False])
def test_rows_retracted_that_are_not_there_end_a_rewrite(
    spark: SparkSession, tmp_path: Path, resized: Resized, by_driver: bool
) -> None:
    """Rows lost inside a file leave no commit: joins read runs unmerged, a rewrite is the first to see what they add up to."""
    resized(driver_compaction_bytes=1 << 20 if by_driver else 0)
    script = Script(spark, tmp_path / "warehouse")
    for name in ("a", "b"):
        script.run(f"CREATE TABLE {name} (g INT, s STRING); INSERT INTO {name} VALUES (1, 'x'), (2, 'y')")
    sides = "(SELECT g, count(*) AS n FROM a GROUP BY g) x JOIN (SELECT g, array_sort(collect_set(s)) AS s FROM b GROUP BY g) y"
    script.run(f"CREATE MATERIALIZED VIEW v AS SELECT x.g, n, s FROM {sides} ON x.g = y.g; REFRESH")
    view = script.warehouse.read().views["v"]
    joined = [t.table_id for t in view.tables if t.schema.kind is StateKind.JOIN_KEY_CONTAINS_UNIQUE_KEY]
    state = Path(script.warehouse.state_path(view))
    lost = [f for f in StateFiles(str(state)).at(None) if f.partition[TABLE_ID] in joined]
    assert lost
    script.run("DELETE FROM a WHERE g = 2; DELETE FROM b WHERE g = 2; REFRESH; VERIFY")
    for file in lost:
        _without_rows(state, file.path)
    with pytest.raises(StateError, match=r"view v: state table .* more often than it was inserted.*--full-refresh"):
        list(EpochRunner(spark, script.warehouse).compact())
