"""Vacuum: what no retained epoch needs is gone, what one needs is there, and epochs go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.claims import Claims
from relstate_dagster.jobs.catalog.locking import maintenance_lock
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib.errors import EpochError
from tests.epoch.scripts import Script, run_ahead

_ONE_VIEW = """
CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
INSERT INTO t SELECT id, id % 4, id FROM range(40);
CREATE MATERIALIZED VIEW a AS SELECT g, sum(v) AS s, max(v) AS m FROM t GROUP BY g;
"""
_SETUP = f"{_ONE_VIEW}CREATE MATERIALIZED VIEW b AS SELECT g, s FROM a WHERE s > 10;"


def _files(path: str) -> set[str]:
    return {str(f) for f in Path(path).rglob("*.parquet") if "_delta_log" not in f.parts}


def _of_version(path: str, version: int | None = None) -> set[str]:
    return {uri.removeprefix("file://") for uri in DeltaTable(path, version=version).file_uris()}


def test_only_what_the_last_epoch_needs_is_left(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP)
    warehouse = Warehouse(tmp_path / "warehouse")
    runner = EpochRunner(spark, warehouse)
    before_refresh = Path(warehouse.state_path(warehouse.read().views["a"]))
    list(runner.run(full_refresh=["a"]))
    for n in range(2):
        script.run(f"UPDATE t SET v = v + 1 WHERE k % 2 = {n}; REFRESH")
        if not n:
            list(runner.compact())
    view = warehouse.read().views["a"]
    paths = [warehouse.state_path(view), warehouse.target("a").path, warehouse.catalog.path]
    assert all(_files(path) > _of_version(path) for path in paths)
    orphan = Path(paths[0]) / "table_id=1" / "vnode=0" / "part-of-a-dead-run.parquet"
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"no commit names it")

    old = len(_files(str(before_refresh)))
    assert sum(r.files_deleted for r in runner.vacuum(["a"])) == old > 0, "a week has not passed: the rest stays"
    assert not before_refresh.exists()
    first = {r.name: r for r in runner.vacuum(epochs=1, hours=0)}
    assert list(first) == ["a", "b", "catalog"]
    assert first["a"].files_deleted > 0
    assert first["catalog"].bytes_deleted > 0
    assert not orphan.exists()
    assert [_files(path) for path in paths[:2]] == [_of_version(path) for path in paths[:2]]
    # The claim was given back after it.
    assert len(_files(paths[2]) - _of_version(paths[2])) <= 1
    assert not any(r.files_deleted for r in runner.vacuum(epochs=1, hours=0) if r.name != "catalog")

    script.verify()
    script.run("DELETE FROM t WHERE k < 5; INSERT INTO t VALUES (100, 9, 1000); REFRESH")
    script.verify()


def test_where_the_log_of_the_oldest_epoch_is_cleaned_up(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_ONE_VIEW)
    for n in range(11):
        script.run(f"UPDATE t SET v = v + 1 WHERE k = {n}; REFRESH")
    warehouse = Warehouse(tmp_path / "warehouse")
    path = warehouse.target("a").path
    log = Path(path) / "_delta_log"
    checkpoint = int(max(log.glob("*.checkpoint.parquet")).name.split(".")[0])
    for commit in log.glob("*.json"):
        if int(commit.name.split(".")[0]) < checkpoint:
            commit.unlink()
    orphan = Path(path) / "part-of-a-dead-run.parquet"
    orphan.write_bytes(b"no commit names it")
    os.utime(orphan, (0, 0))
    list(EpochRunner(spark, warehouse).vacuum(["a"], hours=0))
    assert not orphan.exists()
    readable = range(checkpoint, DeltaTable(path).version() + 1)
    assert all(_of_version(path, version) <= _files(path) for version in readable)
    script.verify()


def test_retained_epochs_stay_readable(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP)
    warehouse = Warehouse(tmp_path / "warehouse")
    for n in range(2):
        script.run(f"UPDATE t SET v = v + 1 WHERE k % 4 = {n}; REFRESH")
    state = warehouse.read()
    *_, second, last = state.views["a"].epochs
    kept = [state.epochs[e].versions["a"].view_version for e in (second, last)]
    path = warehouse.target("a").path
    replaced_lately = _files(path)
    list(EpochRunner(spark, warehouse).vacuum(epochs=2, hours=0))
    assert all(_of_version(path, version) <= _files(path) for version in kept)
    assert _files(path) == replaced_lately, "Delta counts in hours"


def test_a_view_that_lags_behind_finds_what_it_goes_on_from(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.begin(_SETUP)
    warehouse = Warehouse(tmp_path / "warehouse")
    runner = EpochRunner(spark, warehouse)
    run_ahead(script, runner, "a", epochs=2)
    list(runner.vacuum(["a"], epochs=1, hours=0))
    assert warehouse.read().views["b"].last_epoch < warehouse.read().views["a"].last_epoch
    list(runner.run())
    script.verify()


def test_vacuum_says_that_it_waits_for_a_compaction_and_can_be_interrupted(spark: SparkSession, tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    said: list[str] = []

    def interrupted() -> None:
        if said:
            raise Interrupted

    Script(spark, tmp_path / "warehouse").run(_SETUP)
    warehouse = Warehouse(tmp_path / "warehouse")
    with maintenance_lock(warehouse.maintenance_lock_path, "compacting state", shared=True, patience=Patience()):
        with pytest.raises(Interrupted):
            list(EpochRunner(spark, warehouse, patience=Patience(60, said.append, interrupted)).vacuum())
        assert said == [f"waiting for process {os.getpid()}, which is compacting state in this warehouse"]


def test_vacuum_is_refused_beside_a_run_or_a_compaction(spark: SparkSession, tmp_path: Path) -> None:
    Script(spark, tmp_path / "warehouse").run(_SETUP)
    warehouse = Warehouse(tmp_path / "warehouse")
    runner = EpochRunner(spark, warehouse, patience=Patience(0))
    with (
        maintenance_lock(warehouse.maintenance_lock_path, "compacting state", shared=True, patience=Patience()),
        pytest.raises(EpochError, match="compacting state"),
    ):
        list(runner.vacuum())
    with Claims(Warehouse(warehouse.root), "other", "bringing up to date") as other:
        other.take(["b"])
        # It reads older epochs of the view below it.
        with pytest.raises(EpochError, match="bringing up to date b, is still at work"):
            list(runner.vacuum(["a"]))
    list(runner.vacuum())
    assert not warehouse.read().claims
