"""A warehouse in Azure Storage, as Azurite has it: epochs, repairs, and no commit lost by two kinds of writers."""

from __future__ import annotations

import signal
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Warehouse
from relstate_dagster.jobs.catalog.store import CatalogStore
from relstate_dagster.jobs.epoch import publish, view_epoch
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.commit import write_deltalake
from tests import azurite
from tests.epoch.scripts import Script
from tests.epoch.test_recovery import _CHANGES, _SETUP, _VIEWS, in_process
from tests.sizes import Resized


@pytest.fixture(scope="module")
def _store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with azurite.served(tmp_path_factory.mktemp("azurite")):
        azurite.reach(spark)
        yield


@pytest.fixture
def root(_store: None) -> str:
    return f"{azurite.ROOT}/a folder/{uuid.uuid4().hex[:8]}"


def test_epochs_of_all_kinds_of_state_by_spark(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch, resized: Resized
) -> None:
    """Nothing is held by the driver; what it writes itself, the other tests have."""
    monkeypatch.setattr(view_epoch.StateStore, "is_plain", property(lambda _: False))
    monkeypatch.setattr(publish, "written_by_driver", lambda _: False)
    resized(driver_compaction_bytes=0)
    script = Script(spark, root)
    script.run(_SETUP)
    script.run(f"{_CHANGES}; REFRESH; VERIFY")
    runner = EpochRunner(spark, script.warehouse)
    assert any(report.rewritten for report in runner.compact())
    script.run("UPDATE t SET v = v + 1 WHERE k = 5; REFRESH; VERIFY")
    done = {report.name: report for report in runner.vacuum(epochs=1, hours=0)}
    assert done["a"].files_deleted > 0
    script.run("DELETE FROM t WHERE k = 6; REFRESH; VERIFY; DROP MATERIALIZED VIEW b; DROP MATERIALIZED VIEW a")
    script.run("CREATE MATERIALIZED VIEW a AS SELECT count(*) AS n FROM t; REFRESH; VERIFY")


def test_the_next_run_repairs_a_killed_one(spark: SparkSession, root: str) -> None:
    """The killed one is the command line, which has its access from environment variables."""
    script = Script(spark, root)
    script.run(_SETUP + _CHANGES)
    killed = in_process("REFRESH", root, "after_state_commit")
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    list(EpochRunner(spark, Warehouse(root), wait_seconds=0).run())
    script.verify()
    assert {name: len(script.rows(query)) for name, query in _VIEWS.items()} == {"a": 4, "b": 6}


def test_two_kinds_of_writers_lose_nothing(spark: SparkSession, root: str) -> None:
    """Spark's Delta renames a file that must not be there yet, delta-rs puts one: either finds the other's."""
    address = Address.parse(f"{root}/t")
    schema = pa.schema([("writer", pa.string()), ("n", pa.int64())])
    write_deltalake(address.delta_rs, pa.table({"writer": [], "n": []}, schema=schema), storage_options=address.options)

    def by_delta_rs() -> None:
        for n in range(8):
            rows = pa.table({"writer": ["delta-rs"], "n": [n]}, schema=schema)
            write_deltalake(address.delta_rs, rows, mode="append", storage_options=address.options)

    def by_spark(name: str) -> None:
        for n in range(4):
            frame = spark.sql(f"SELECT '{name}' AS writer, {n}L AS n").coalesce(1)
            frame.write.format("delta").mode("append").save(address.spark)

    writers = [threading.Thread(target=by_delta_rs)]
    writers += [threading.Thread(target=by_spark, args=(f"spark {n}",)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    rows = spark.read.format("delta").load(address.spark).collect()
    assert Counter(row["writer"] for row in rows) == {"delta-rs": 8, "spark 0": 4, "spark 1": 4}


def test_writers_of_the_catalog_lose_nothing(root: str) -> None:
    def write() -> None:
        store = CatalogStore(Warehouse(root).root)
        for _ in range(5):
            store.update(lambda state: replace(state, next_epoch=state.next_epoch + 1))

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert Warehouse(root).read().next_epoch == 16


def test_it_is_an_address_like_others(root: str, tmp_path: Path) -> None:
    address = Address.parse(root)
    assert (address.is_azure, address.is_s3, address.is_local) == (True, False, False)
    assert Address.parse(str(tmp_path)).options is None
