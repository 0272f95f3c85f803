"""Sources that others write, delta-rs and Spark in turn: what changed is counted and checked from files, not from metrics."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.sources.delta_source import DeltaSource
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.log import DeltaLog, rows_by_partition
from tests.epoch.scripts import Script
from tests.sizes import Resized

_FEED = {"delta.enableChangeDataFeed": "true"}
_KEYED = "CREATE TABLE t (k INT, g INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1), (2, 1), (3, 2);"
_VIEWS = "CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n, max(k) AS m FROM t GROUP BY g;"


def _rows(*rows: tuple[int, int]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.int32()), "g": pa.array([g for _, g in rows], pa.int32())})


def _append(path: str, *rows: tuple[int, int]) -> None:
    deltalake.write_deltalake(path, _rows(*rows), mode="append")


@pytest.mark.parametrize("by_spark", [False, True], ids=["searched by the driver", "searched by Spark"])
def test_a_duplicate_key_between_a_delete_and_an_append(script: Script, resized: Resized, *, by_spark: bool) -> None:
    resized(searched_rows=0 if by_spark else 1_000_000)
    script.begin(_KEYED + _VIEWS)
    path = script.warehouse.source_path("t")
    script.run("DELETE FROM t WHERE k = 3")
    _append(path, (2, 9))
    with pytest.raises(SourceError, match=r"PRIMARY KEY \(k\).*2 rows have k = 2"):
        raise script.error("REFRESH")
    DeltaTable(path).delete("k = 2 and g = 9")
    _append(path, (4, 9))
    script.run("REFRESH")
    script.verify()


def test_a_moved_key_is_none_twice(script: Script, resized: Resized) -> None:
    """A key that is deleted and comes again within a range is one row, wherever it is searched."""
    resized(searched_rows=0)
    script.begin(_KEYED + _VIEWS)
    path = script.warehouse.source_path("t")
    DeltaTable(path).delete("k = 3")
    _append(path, (3, 7), (5, 7))
    script.run("REFRESH")
    script.verify()


@pytest.mark.parametrize(
    ("data_type", "old", "new"),
    [
        ("DOUBLE", "double('NaN')", "double('NaN')"),
        ("DOUBLE", "0D", "double('-0.0')"),
        ("DECIMAL(20,0)", "12345678901234567891", "12345678901234567891"),
        ("TIMESTAMP", "timestamp_micros(123456789)", "timestamp_micros(123456789)"),
        ("STRING", "concat('\u2028', '\u0085')", "concat('\u2028', '\u0085')"),
    ],
)
def test_keys_that_spark_takes_for_equal(script: Script, data_type: str, old: str, new: str) -> None:
    script.run(f"CREATE TABLE d (k {data_type}, v INT, PRIMARY KEY (k)); INSERT INTO d VALUES ({old}, 1)")
    script.run("CREATE MATERIALIZED VIEW s AS SELECT sum(v) AS s FROM d")
    script.run(f"INSERT INTO d VALUES ({new}, 2)")
    with pytest.raises(SourceError, match="2 rows have k ="):
        raise script.error("REFRESH")


# -- counts -----------------------------------------------------------------------------------------------------------


def _changed(path: str, change: Callable[[], object]) -> tuple[int, int]:
    """Rows inserted and deleted by a change, as a source counts them."""
    since = DeltaSource("t", path).pin(None)
    change()
    source = DeltaSource("t", path)
    found = source.check_range(since, source.pin(since), append_only=False)
    return found.rows_inserted, found.rows_deleted


def test_changes_by_delta_rs_are_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, _rows((1, 1), (2, 1), (3, 2)), configuration=_FEED)

    def merge() -> None:
        merging = DeltaTable(path).merge(_rows((1, 5), (8, 8)), "v.k = c.k", source_alias="c", target_alias="v")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    assert _changed(path, lambda: _append(path, (4, 1), (5, 1))) == (2, 0)
    assert _changed(path, lambda: DeltaTable(path).delete("k = 5")) == (0, 1)
    assert _changed(path, merge) == (2, 1)
    assert _changed(path, lambda: DeltaTable(path).update(updates={"g": "7"}, predicate="k < 3")) == (2, 2)
    assert _changed(path, lambda: DeltaTable(path).optimize.compact()) == (0, 0)
    assert _changed(path, lambda: deltalake.write_deltalake(path, _rows((9, 9)), mode="overwrite")) == (1, 5)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_changes_by_spark_are_counted(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    path, session = str(tmp_path / "t"), spark.newSession()
    table = f"delta.`{path}`"
    session.sql(
        f"CREATE TABLE {table} (k INT, g INT) USING delta TBLPROPERTIES "
        f"('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = '{vectors}')"
    )
    # Nothing is counted in the log.
    session.conf.set("spark.databricks.delta.stats.collect", "false")
    assert _changed(path, lambda: session.sql(f"INSERT INTO {table} SELECT id, id FROM range(10)")) == (10, 0)
    session.conf.set("spark.databricks.delta.stats.collect", "true")
    assert _changed(path, lambda: session.sql(f"INSERT INTO {table} SELECT id, id FROM range(10, 20)")) == (10, 0)
    assert _changed(path, lambda: session.sql(f"DELETE FROM {table} WHERE k = 3 OR k = 13")) == (0, 2)
    assert _changed(path, lambda: session.sql(f"UPDATE {table} SET g = 0 WHERE k < 2")) == (2, 2)
    assert _changed(path, lambda: session.sql(f"INSERT OVERWRITE {table} VALUES (1, 1)")) == (1, 18)


def test_many_removed_files_are_counted_from_the_log(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for n in range(12):
        deltalake.write_deltalake(path, _rows((n, n), (100 + n, n)), mode="append", configuration=_FEED)

    def overwrite() -> None:
        _append(path, (1000, 1))
        deltalake.write_deltalake(path, _rows((9, 9)), mode="overwrite")

    assert _changed(path, overwrite) == (2, 25)


def test_rows_of_a_state_commit_without_statistics(spark: SparkSession, tmp_path: Path) -> None:
    path, session = str(tmp_path / "t"), spark.newSession()
    session.conf.set("spark.databricks.delta.stats.collect", "false")
    rows = session.range(10).selectExpr("id", "IF(id < 3, 'a b', 'c%') AS p")
    rows.write.format("delta").partitionBy("p").save(path)
    assert rows_by_partition(DeltaLog(path).commit(0), "p") == {"a b": 3, "c%": 7}


def test_an_epoch_over_files_without_statistics(script: Script, spark: SparkSession) -> None:
    script.run("CREATE TABLE a (k INT, v INT) TBLPROPERTIES ('delta.appendOnly' = 'true')")
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.stats.collect", "false")
    table = f"delta.`{script.warehouse.source_path('a')}`"
    session.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    script.run("CREATE MATERIALIZED VIEW m AS SELECT k, v FROM a WHERE v > 0")
    session.sql(f"INSERT INTO {table} VALUES (3, 3)")
    script.run("REFRESH")
    script.verify()
    assert script.rows("SELECT k FROM m") == [(1,), (2,), (3,)]


def test_converted_files_of_the_same_name(script: Script, spark: SparkSession, tmp_path: Path) -> None:
    """CONVERT TO DELTA takes folders as they are, each with a ``part-0.parquet``; rows without a key go by their file."""
    path, session = tmp_path / "con verted+1", spark.newSession()
    for n, place in enumerate(("a b", "c+d", "e")):
        folder = path / f"p={place}"
        session.range(10 * n, 10 * n + 5).coalesce(1).write.parquet(str(folder))
        (file,) = folder.glob("*.parquet")
        file.rename(folder / "part-0.parquet")
        for other in folder.iterdir():
            if other.name != "part-0.parquet":
                other.unlink()
    session.sql(f"CONVERT TO DELTA parquet.`{path}` PARTITIONED BY (p STRING)")
    session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    script.run(f"CREATE TABLE c USING delta LOCATION '{path}'; CREATE MATERIALIZED VIEW r AS SELECT id, p FROM c")
    script.verify()
    assert len(script.rows("SELECT * FROM r")) == 15
    session.sql(f"INSERT INTO delta.`{path}` VALUES (99, 'e')")
    script.run("REFRESH")
    script.verify()


def test_a_long_decimal_in_a_published_view_is_found(script: Script) -> None:
    script.run("CREATE TABLE l (x DECIMAL(20,0), d DOUBLE); INSERT INTO l VALUES (12345678901234567891, double('NaN')), (1, 1)")
    script.run("CREATE MATERIALIZED VIEW byx AS SELECT x, max(d) AS d, count(*) AS n FROM l GROUP BY x")
    assert len(script.rows("SELECT * FROM byx WHERE x = 12345678901234567891 AND d > 10")) == 1
    script.run("INSERT INTO l VALUES (12345678901234567891, 2); REFRESH; VERIFY")
    assert script.rows("SELECT n FROM byx WHERE x = 12345678901234567891") == [(2,)]


# -- what a pin names -------------------------------------------------------------------------------------------------


def _create(path: Path, *rows: tuple[int, int]) -> None:
    deltalake.write_deltalake(str(path), _rows(*rows), configuration=_FEED)


def _pinned(path: Path, previous: Pin | None = None) -> Pin:
    return DeltaSource("x", str(path)).pin(previous)


def test_a_table_written_again_up_to_the_same_version_is_another(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(path, (1, 1))
    script.run(f"CREATE TABLE x USING delta LOCATION '{path}'; CREATE MATERIALIZED VIEW v AS SELECT g, k FROM x")
    shutil.rmtree(path)
    _create(path, (2, 2))
    with pytest.raises(SourceError, match=r"another table.*--full-refresh"):
        raise script.error("REFRESH")
    list(EpochRunner(script.session._spark, script.warehouse).run(full_refresh=["v"]))
    script.verify()
    assert script.rows("SELECT k FROM v") == [(2,)]


def test_a_copy_put_back_and_changed_otherwise_is_another(script: Script, tmp_path: Path) -> None:
    path, copy = tmp_path / "x", tmp_path / "copy"
    _create(path, (1, 1))
    shutil.copytree(path, copy)
    _append(str(path), (2, 2))
    script.run(f"CREATE TABLE x USING delta LOCATION '{path}'; CREATE MATERIALIZED VIEW v AS SELECT g, k FROM x")
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    _append(str(path), (3, 3))
    with pytest.raises(SourceError, match=r"version 1 is another commit.*--full-refresh"):
        raise script.error("REFRESH")
    _append(str(path), (4, 4))
    with pytest.raises(SourceError, match=r"version 1 is another commit.*--full-refresh"):
        raise script.error("REFRESH")


def test_pins(tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(path, (1, 1))
    first = _pinned(path)
    assert Pin.from_dict(first.to_dict()) == first
    assert _pinned(path, first) is first
    without = Pin.from_dict({k: v for k, v in first.to_dict().items() if k != "fingerprint"})
    assert without.is_same(first)
    assert _pinned(path, without).is_same(first)
    shutil.copytree(path, tmp_path / "moved")
    assert _pinned(tmp_path / "moved", first) is first
    shutil.rmtree(path)
    _create(path, (1, 1))
    again = _pinned(path, first)
    assert not again.is_same(first)
    assert not _pinned(path, without).is_same(without)
    _append(str(path), (2, 2))
    with pytest.raises(SourceError, match="another table"):
        DeltaSource("x", str(path)).check_range(first, _pinned(path), append_only=False)


def test_a_pin_whose_commit_was_cleaned_up(tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(path, (1, 1))
    _append(str(path), (2, 2))
    since = _pinned(path)
    _append(str(path), (3, 3))
    DeltaTable(path).create_checkpoint()
    for version in (0, 1):
        (path / f"_delta_log/{version:020d}.json").unlink()
    source = DeltaSource("x", str(path))
    assert source.check_range(since, source.pin(since), append_only=False).rows_inserted == 1


def test_a_snapshot_of_another_life_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "x"
    _create(path, (1, 1))
    pin = _pinned(path)
    shutil.rmtree(path)
    _create(path, (2, 2))
    with pytest.raises(SourceError, match="another commit"):
        DeltaSource("x", str(path)).snapshot(spark, pin)


def test_lines_of_a_commit_end_with_line_feeds_only(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    texts = ["\u2028", "\u2029", "\u0085", "\x0b\x0c\x1c", "\r", "\n"]
    deltalake.write_deltalake(path, pa.table({"k": texts}))
    log = Path(path) / "_delta_log" / f"{0:020d}.json"
    # As Spark writes them: not escaped.
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").split("\n") if line]
    log.write_text("\n".join(json.dumps(action, ensure_ascii=False) for action in actions) + "\n", encoding="utf-8", newline="")
    assert len(DeltaLog(path).commit(0)) == len(actions)
