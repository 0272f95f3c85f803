"""What holds in every object store: checks that the tests of each one make."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Warehouse
from relstate_dagster.jobs.catalog.store import CatalogStore
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.targets import delta_table
from relstate_dagster.jobs.view_epoch import view_epoch
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.commit import write_deltalake
from tests.epoch.killed import in_process
from tests.epoch.scripts import Script
from tests.epoch.test_recovery import _CHANGES, _SETUP, _VIEWS
from tests.sizes import Resized


def leave_to_spark(monkeypatch: pytest.MonkeyPatch, resized: Resized) -> None:
    """Nothing is held, or written, by the driver."""
    monkeypatch.setattr(view_epoch.StateStore, "is_plain", property(lambda _: False))
    monkeypatch.setattr(delta_table, "written_by_driver", lambda _: False)
    resized(driver_compaction_bytes=0)


def epochs_of_all_kinds_of_state(spark: SparkSession, root: str) -> Script:
    """Epochs, compaction, vacuum and a full refresh; each view equals its query after each."""
    script = Script(spark, root)
    script.run(_SETUP)
    script.run(f"{_CHANGES}; REFRESH; VERIFY")
    runner = EpochRunner(spark, script.warehouse)
    assert any(report.rewritten for report in runner.compact())
    script.run("UPDATE t SET v = v + 1 WHERE k = 5; REFRESH; VERIFY")
    assert [report.duplicated_keys for report in runner.stream_key_unique({"a": None, "b": None})] == [0, 0]
    done = {report.name: report for report in runner.vacuum(epochs=1, hours=0)}
    assert done["a"].files_deleted > 0
    script.run("DELETE FROM t WHERE k = 6; REFRESH; VERIFY")
    list(runner.run(full_refresh=["a"]))
    script.verify()
    return script


def a_killed_run_is_repaired(spark: SparkSession, root: str) -> None:
    """The killed one is the command line, which has its access from environment variables."""
    script = Script(spark, root)
    script.run(_SETUP + _CHANGES)
    killed = in_process("REFRESH", root, "after_state_commit")
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    # On the same machine it is known at once; the lease has two minutes to go.
    list(EpochRunner(spark, Warehouse(root), patience=Patience(0)).run())
    script.verify()
    assert {name: len(script.rows(query)) for name, query in _VIEWS.items()} == {"a": 4, "b": 6}
    assert all(report.skipped for report in EpochRunner(spark, script.warehouse).run())


def two_kinds_of_writers_lose_nothing(spark: SparkSession, root: str) -> None:
    """Four by delta-rs and two by Spark append to one table at once."""
    address = Address.parse(f"{root}/t")
    schema = pa.schema([("writer", pa.string()), ("n", pa.int64())])
    write_deltalake(address.delta_rs, pa.table({"writer": [], "n": []}, schema=schema), storage_options=address.options)

    def by_delta_rs(name: str) -> None:
        for n in range(8):
            rows = pa.table({"writer": [name], "n": [n]}, schema=schema)
            write_deltalake(address.delta_rs, rows, mode="append", storage_options=address.options)

    def by_spark(name: str) -> None:
        for n in range(4):
            frame = spark.sql(f"SELECT '{name}' AS writer, {n}L AS n").coalesce(1)
            frame.write.format("delta").mode("append").save(address.spark)

    writers = [threading.Thread(target=by_delta_rs, args=(f"delta-rs {n}",)) for n in range(4)]
    writers += [threading.Thread(target=by_spark, args=(f"spark {n}",)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    rows = spark.read.format("delta").load(address.spark).collect()
    assert Counter(row["writer"] for row in rows) == {
        **{f"delta-rs {n}": 8 for n in range(4)},
        **{f"spark {n}": 4 for n in range(2)},
    }


def writers_of_the_catalog_lose_nothing(root: str) -> None:
    """Three at once."""

    def write(_: int) -> None:
        store = CatalogStore(Warehouse(root).root)
        for _ in range(5):
            store.update(lambda state: replace(state, next_epoch=state.next_epoch + 1))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    assert Warehouse(root).read().next_epoch == 16
