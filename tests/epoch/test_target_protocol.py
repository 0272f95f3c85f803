"""A second kind of target: a Parquet folder with all rows of each epoch."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.api import EpochRunner
from relstate_dagster.jobs.inspect.view_rows import arrow_rows, spark_rows
from relstate_dagster.jobs.targets import registry
from relstate_dagster.jobs.targets.chain import EpochCommit, Fence, Recorded
from relstate_dagster.jobs.targets.declared_table import DeclaredTable
from relstate_dagster.jobs.targets.protocol import (
    IS_THERE,
    OP,
    Changes,
    Published,
    Target,
    TargetFound,
    TargetWriter,
)
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.errors import RelstateError
from tests.epoch.scripts import Script


class Snapshots(Target):
    """A folder for each epoch, whose number is the version.

    ``_commit.json`` is written last.
    """

    def folder(self, version: int) -> Path:
        return Path(self.path) / str(version)

    def open(
        self,
        session: SparkSession,
        declared: DeclaredTable,
        wanted: EpochCommit,
        recorded: Recorded,
        fence: Fence,
        *,
        is_first: bool,
    ) -> TargetWriter:
        return SnapshotWriter(self, wanted, None if is_first else recorded.version)

    def driver_can_write(self, declared: DeclaredTable) -> bool:
        return False

    def found(self, declared: DeclaredTable, version: int, *, replaces: bool = False) -> TargetFound:
        size = sum(file.stat().st_size for file in self.folder(version).glob("*.parquet"))
        return TargetFound(size, driver_writes=False, replaces=replaces)

    def rows(self, session: SparkSession, version: int) -> DataFrame:
        return session.read.parquet(str(self.folder(version)))


class SnapshotWriter(TargetWriter):
    """Writes the rows of the last version as the changes make them."""

    def __init__(self, target: Snapshots, wanted: EpochCommit, before: int | None) -> None:
        self._target = target
        self._wanted = wanted
        self._before = before
        self._commit = target.folder(wanted.epoch) / "_commit.json"
        is_done = self._commit.exists() and json.loads(self._commit.read_text())["digest"] == wanted.digest
        self.done = wanted.epoch if is_done else None
        self.found = TargetFound(0, driver_writes=False, is_empty=before is None)

    def append(self, session: SparkSession, changes: Changes) -> Published:
        return self.merge(session, changes)

    def merge(self, session: SparkSession, changes: Changes) -> Published:
        new = session.createDataFrame(changes.to_pandas()) if isinstance(changes, pa.Table) else changes
        rows = new.where(F.col(OP) > 0).drop(OP, IS_THERE)
        if self._before is not None:
            kept = self._target.rows(session, self._before).join(new.select(VIEW_KEY), VIEW_KEY, "left_anti")
            rows = kept.select(rows.columns).union(rows)
        folder = self._target.folder(self._wanted.epoch)
        rows.coalesce(1).write.mode("overwrite").parquet(str(folder))
        self._commit.write_text(self._wanted.to_json())
        there = new.where(IS_THERE).count()
        return Published(self._wanted.epoch, new.where(F.col(OP) > 0).count(), there)

    def replace(self, session: SparkSession, changes: DataFrame, keys: pa.ChunkedArray) -> Published:
        return self.merge(session, changes)

    def overwrite(self, session: SparkSession, changes: DataFrame) -> Published:
        self._before = None
        return self.merge(session, changes)


def test_views_are_published_to_it(spark: SparkSession, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KINDS, "delta", Snapshots)
    script.run("""
        CREATE TABLE t (k BIGINT, g INT, v DECIMAL(10,2), PRIMARY KEY (k));
        INSERT INTO t VALUES (1, 1, 0.5), (2, 1, 1.5), (3, 2, NULL), (4, NULL, 7);
        CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g;
        CREATE MATERIALIZED VIEW bag AS SELECT g, v > 1 AS large FROM t;
        CREATE MATERIALIZED VIEW over AS SELECT n, count(*) AS groups FROM sums GROUP BY n;
        VERIFY
    """)
    changes = (
        "INSERT INTO t VALUES (5, 2, 3), (6, 3, 4); DELETE FROM t WHERE g IS NULL",
        "UPDATE t SET v = v + 1 WHERE k < 3; DELETE FROM t WHERE k = 5",
    )
    for number, change in enumerate(changes):
        before = {name: state.view_version for name, state in _versions(script).items()}
        script.run(f"{change}; REFRESH; VERIFY")
        after = {name: state.view_version for name, state in _versions(script).items()}
        for name in before:
            target = script.warehouse.target(name)
            assert isinstance(target, Snapshots)
            folder = target.folder(after[name])
            assert (number, name, EpochCommit.of_text((folder / "_commit.json").read_text()).view) == (number, name, name)
            assert pq.read_table(folder, partitioning=None).num_rows == len(script.rows(f"SELECT * FROM {name}"))
            rows = spark_rows(spark, script.warehouse, name)
            assert sorted(map(repr, map(tuple, rows.collect()))) == sorted(map(repr, script.rows(f"SELECT * FROM {name}")))
            assert arrow_rows(script.warehouse, name) is None, "only Spark reads it"
    # Rows of an earlier epoch are still there.
    assert script.warehouse.target("over").folder(before["over"]).exists()
    list(EpochRunner(spark, script.warehouse).run(full_refresh=["sums", "over"]))
    script.run("VERIFY; DROP MATERIALIZED VIEW over")
    assert not Path(script.warehouse.root, "views", "over").exists()


def _versions(script: Script):
    state = script.warehouse.read()
    return {name: state.versions_at(name) for name in state.views}


def test_a_failed_commit_leaves_nothing_half_done(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KINDS, "delta", Snapshots)
    script.run("""
        CREATE TABLE t (k BIGINT, PRIMARY KEY (k)); INSERT INTO t VALUES (1);
        CREATE MATERIALIZED VIEW v AS SELECT k, k * 2 AS d FROM t;
        INSERT INTO t VALUES (2)
    """)
    append = SnapshotWriter.append

    def fails_afterwards(writer: SnapshotWriter, session: SparkSession, changes: Changes) -> Published:
        append(writer, session, changes)
        raise OSError("the disk went away")

    with monkeypatch.context() as broken:
        broken.setattr(SnapshotWriter, "append", fails_afterwards)
        with pytest.raises(RelstateError, match="the disk went away"):
            script.run("REFRESH")
    assert script.rows("SELECT * FROM v") == [(1, 2)]
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT * FROM v ORDER BY k") == [(1, 2), (2, 4)]
