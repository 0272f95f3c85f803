"""One Delta table a view: appends, versions, lookups, and what is read from disk."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from stores import created, table

from relstate_dagster.state_lib.compaction import empty_tables
from relstate_dagster.state_lib.constants import ROW_ID, TABLE_ID
from relstate_dagster.state_lib.delta_layout import TABLES_PROPERTY
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.lake.log import latest_commits
from relstate_dagster.state_lib.lazy_frame import lazy, select
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.merge import merge_runs
from relstate_dagster.state_lib.row_encoding import decode_row, encoded_parts
from relstate_dagster.state_lib.row_width import value_bytes
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.table_catalog import desc_from_dict
from relstate_dagster.state_lib.table_schema import KeyPart, MergeRule
from tests.sizes import Resized

pytestmark = pytest.mark.spark

LEFT = table(3, "id bigint; name string; weight int", ["id", "name"], MergeRule.SUM, label="left", vnode_count=4)
TOTALS = table(9, "name string; total bigint", [KeyPart("name", True, True)], label="sum(weight)", vnode_count=2)


def write(store: StateStore, epoch: int, **changes: DataFrame) -> int:
    """Append change sets of tables, named t3, t9, …"""
    mem_tables = []
    for name, change_set in changes.items():
        state_table = store.state_table(int(name[1:]), epoch=epoch)
        state_table.write(change_set)
        mem_tables.append(state_table.mem_table)
    return store.append(epoch, mem_tables, txn_app_id="view", txn_version=epoch, user_metadata=f"epoch {epoch}")


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> StateStore:
    """As :func:`two_epochs`, for tests that only read it."""
    return two_epochs(spark, tmp_path_factory.mktemp("store"))


def two_epochs(spark: SparkSession, path: Path) -> StateStore:
    """Two epochs of two tables."""
    store = created(spark, path, LEFT, TOTALS)
    rows = spark.range(100).selectExpr("id", "concat('n', id % 5) AS name", "cast(id AS int) AS weight", "1L AS _weight")
    totals = rows.groupBy("name").agg(F.sum("weight").alias("total"), F.lit(1).cast("bigint").alias("_weight"))
    write(store, 1, t3=rows, t9=totals)
    gone = spark.sql("SELECT 7L AS id, 'n2' AS name, 7 AS weight, -1L AS _weight")
    update = spark.sql("SELECT * FROM VALUES ('n2', 0L, -1L), ('n2', 1L, 1L), (NULL, 8L, 1L) t(name, total, _weight)")
    write(store, 2, t3=gone, t9=update)
    return store


def test_an_epoch_is_one_commit_of_sorted_files_one_a_table_and_vnode(spark: SparkSession, store: StateStore) -> None:
    assert [(c.version, c.user_metadata) for c in latest_commits(store.path)] == [
        (2, "epoch 2"), (1, "epoch 1"), (0, None),
    ]  # fmt: skip
    first = store.stored([3, 9], 1)
    assert len(first.inputFiles()) == 4 + 2
    files = first.select("table_id", "vnode", "key", "epoch", F.input_file_name().alias("file")).collect()
    assert {row["epoch"] for row in files} == {1}
    for name in {row["file"] for row in files}:
        own = [row for row in files if row["file"] == name]
        assert [bytes(row["key"]) for row in own] == sorted(bytes(row["key"]) for row in own)
        assert len({(row["table_id"], row["vnode"]) for row in own}) == 1
    parts = encoded_parts(LEFT.schema.columns, LEFT.schema.storage_key)
    decoded = {decode_row(bytes(row["key"]), parts) for row in files if row["table_id"] == 3}
    assert decoded == {(n, f"n{n % 5}") for n in range(100)}


def test_a_table_is_read_as_of_a_version_or_an_epoch(store: StateStore) -> None:
    assert store.storage_table(3).scan().count() == 99
    assert store.storage_table(3, version=1).scan().count() == 100
    assert store.storage_table(3, epoch=1).scan().count() == 100
    assert store.storage_table(3, version=0).scan().count() == 0
    # A table open for epoch 2 sees what epochs before it committed.
    assert store.state_table(9, epoch=2).scan({"name": "n2"}).collect() == [("n2", sum(range(2, 100, 5)))]
    assert store.state_table(9, epoch=3).scan({"name": "n2"}).collect() == [("n2", 1)]


def test_scan_merges_in_key_order(store: StateStore) -> None:
    assert [row["name"] for row in store.storage_table(9).scan().collect()] == ["n4", "n3", "n2", "n1", "n0", None]
    rows = store.storage_table(3).scan({"id": 8}).collect()
    assert [tuple(row) for row in rows] == [(8, "n3", 8, 1)]
    assert store.storage_table(3).scan({"id": 7}).collect() == []
    # Asked for fewer columns, rows that are equal in them count as one.
    assert sorted(map(tuple, store.storage_table(3).scan(columns=["name"]).collect()))[2] == ("n2", 19)


def test_merging_can_keep_the_epoch(store: StateStore) -> None:
    runs = store.storage_table(9).runs()
    merged = merge_runs(runs, TOTALS.schema, keep_epoch=True).where("name = 'n2'").collect()
    assert [row.asDict() for row in merged] == [{"name": "n2", "total": 1, "_epoch": 2}]


def test_lookup_gives_the_unmerged_runs_of_some_keys(spark: SparkSession, store: StateStore) -> None:
    left = store.storage_table(3)
    keys = spark.sql("SELECT * FROM VALUES (7L), (8L), (8L), (1000L), (NULL) t(id)")
    found = left.lookup(keys, [("id", "id")]).orderBy("id", "_epoch").collect()
    assert [tuple(row) for row in found] == [(7, "n2", 7, 1, 1), (7, "n2", 7, -1, 2), (8, "n3", 8, 1, 1)]

    totals = store.storage_table(9)
    nulls = spark.sql("SELECT cast(NULL AS string) AS k, 8L AS n")
    on = [("name", "k"), ("total", "n")]
    assert totals.lookup(nulls, on, columns=["total"]).collect() == []
    assert totals.lookup(nulls, on, [True, False], ["total"], hint=None).collect() == [(8, 1, 2)]
    with pytest.raises(StateError, match="a lookup needs a column"):
        totals.lookup(nulls, [])


def plan_of(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    frame.explain()
    return capsys.readouterr().out


def test_reads_prune_partitions_and_columns(spark: SparkSession, store: StateStore, capsys: pytest.CaptureFixture[str]) -> None:
    keys = spark.range(3).selectExpr("id AS k")
    plan = plan_of(store.storage_table(3, version=2).lookup(keys, [("id", "k")], columns=["weight"]), capsys)
    assert "table_id=9" not in plan
    assert "ReadSchema: struct<epoch:bigint,weight:bigint,bigint_1:bigint,int_1:int>" in plan
    assert "BroadcastHashJoin" in plan
    plan = plan_of(store.storage_table(3).scan({"id": 8}, ["name"]), capsys)
    assert "EqualNullSafe(bigint_1,8)" in plan or "EqualTo(bigint_1,8)" in plan
    assert "key:binary" not in plan


def test_a_small_append_is_written_by_the_driver_like_a_large_one(spark: SparkSession, tmp_path: Path) -> None:
    store = two_epochs(spark, tmp_path)
    written = [(f.partition[TABLE_ID], f.rows) for f in store.files.at(2) if f.lower["epoch"] == 2]
    assert written == [(3, 1), (9, 3)]
    table = store.state_table(3, epoch=3)
    table.write(spark.sql("SELECT 1000L AS id, 'new' AS name, 1 AS weight, 1L AS _weight"))
    rows = store.compute(3, [table.mem_table], 1 << 20)
    assert rows is not None
    ids = {"txn_app_id": "store", "txn_version": 3, "user_metadata": "epoch 3"}
    version = store.append_computed(3, rows, **ids)
    assert version == 3
    assert store.append_computed(3, rows, **ids) == version, "a repetition finds its own commit"
    with pytest.raises(StateError, match="committed version 3 or a later one with other data"):
        store.append_computed(3, rows, **{**ids, "user_metadata": "other"})
    assert [row["weight"] for row in store.storage_table(3, version=3).scan({"id": 1000}).collect()] == [1]
    assert spark.read.format("delta").load(store.path).where("epoch = 3").count() == 1


def test_rows_of_a_number_that_nobody_knows_are_computed_once(spark: SparkSession, tmp_path: Path) -> None:
    store = created(spark, tmp_path, TOTALS)
    drawn = spark.range(4).selectExpr("'n' || id AS name", "cast(rand() * 1e9 AS bigint) AS total", "1L AS _weight")
    mem_tables = []
    for rows in (drawn.where("name < 'n3'"), drawn):
        state_table = store.state_table(9, epoch=1)
        state_table.write(rows)
        mem_tables.append(state_table.mem_table)
    none, held = store.compute_few(1, mem_tables[:1], 0)
    assert none is None
    three_rows = 3 * value_bytes(held.schema)
    few, _ = store.compute_few(1, mem_tables[:1], three_rows)
    assert few is not None
    assert few["table_id"].to_pylist() == [9, 9, 9]
    assert few["epoch"].to_pylist() == [1, 1, 1]
    few, held = store.compute_few(1, mem_tables[1:], three_rows)
    assert few is None
    ids = {"txn_app_id": "view", "txn_version": 1, "user_metadata": "epoch 1"}
    version = store.append(1, mem_tables[1:], partitions=2, computed=held, **ids)
    key_and_total = held.select("key", "bigint_1")
    assert sorted(store.stored([9], version).select("key", "bigint_1").collect()) == sorted(key_and_total.collect())


@pytest.mark.parametrize("restricted_rows", [0, 1_000_000])
def test_a_lookup_skips_files_that_cannot_hold_its_values(store: StateStore, restricted_rows: int, resized: Resized) -> None:
    resized(unfiltered_rows=restricted_rows)

    def files_read(values: list[int]) -> int:
        wanted = LookupKeys.of("id", pa.chunked_array([values], pa.int64()), null_safe=True)
        rows = store.storage_table(3, version=2).runs(lookup_keys=wanted)
        found, wanted_ids = {row["id"] for row in rows.collect()}, set(values) & set(range(100))
        assert found >= wanted_ids if restricted_rows else found == wanted_ids
        return len(rows.inputFiles())

    assert files_read([2000]) == 0
    assert files_read([]) == 0
    assert files_read([7]) > files_read([99])
    assert LookupKeys.of("id", pa.chunked_array([[1, None]]), null_safe=True) is None
    assert LookupKeys.of("id", pa.chunked_array([[1, None]]), null_safe=False) == LookupKeys("id", (1,))
    assert LookupKeys.of("x", pa.chunked_array([[0.5]]), null_safe=True) is None


def test_the_delta_table_explains_itself(spark: SparkSession, store: StateStore) -> None:
    (row,) = spark.sql(f"SHOW TBLPROPERTIES delta.`{store.path}` ('{TABLES_PROPERTY}')").collect()
    assert tuple(map(desc_from_dict, json.loads(row["value"]))) == (LEFT, TOTALS)


def test_an_append_is_repeated_without_effect_and_other_data_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    store = StateStore(spark, StateFiles(str(tmp_path / "state")), [TOTALS])
    assert not store.exists()
    store.create()
    assert store.exists()
    rows = spark.sql("SELECT 'a' AS name, 1L AS total, 1L AS _weight")
    assert write(store, 1, t9=rows) == 1
    assert write(store, 1, t9=rows) == 1
    assert store.storage_table(9).runs().count() == 1
    mem_table = store.state_table(9, epoch=1).mem_table
    mem_table.write(rows)
    with pytest.raises(StateError, match="epoch 1 was not written: view has committed version 1"):
        store.append(1, [mem_table], txn_app_id="view", txn_version=1, user_metadata="another run")
    # An epoch in which nothing changed is committed too, so that its txn version is taken.
    assert store.append(2, [], txn_app_id="view", txn_version=2, user_metadata="empty") == 2
    assert store.find_commit("epoch 1") == 1
    assert store.find_commit("never") is None
    with pytest.raises(StateError, match="no table_id 5"):
        store.storage_table(5)


def test_tables_are_emptied_unless_another_commit_came_first(spark: SparkSession, tmp_path: Path) -> None:
    """Of any types, and without a look at their rows."""
    of_variants = table(5, "id bigint; v variant", ["id"], MergeRule.SUM, vnode_count=2)
    store = created(spark, tmp_path, of_variants, TOTALS)
    rows = spark.range(40).selectExpr("id", "parse_json(CAST(id AS STRING)) AS v", "1L AS _weight")
    totals = spark.sql("SELECT 'a' AS name, 1L AS total, 1L AS _weight")
    first = write(store, 1, t5=rows, t9=totals)
    second = write(store, 2, t5=rows.selectExpr("id + 100 AS id", "v", "_weight"))

    def counts() -> list[int]:
        return [store.stored([number]).count() for number in (5, 9)]

    assert not empty_tables(store.path, [5], version=first, app_id="compaction", txn_version=5)
    assert counts() == [80, 1]
    assert empty_tables(store.path, [5], version=second, app_id="compaction", txn_version=5)
    assert counts() == [0, 1]
    assert store.stored([5], second).count() == 80, "as of before"
    write(store, 3, t5=rows)
    assert counts() == [40, 1]


_TYPES = {
    "bigint": "id",
    "string": "concat('ü`', id)",
    "double": "id / 3D - 1",
    "decimal(12,3)": "id",
    "timestamp": "timestamp_seconds(id)",
    "date": "date_from_unix_date(id)",
    "boolean": "id % 2 = 0",
    "binary": "encode(id, 'utf-8')",
    "smallint": "id",
    "array<int>": "array(id, NULL)",
    "struct<x:int,y:string>": "named_struct('x', id, 'y', concat('s', id))",
}


@pytest.mark.parametrize("vnode_count", [1, 8])
@pytest.mark.parametrize("key", [[], [ROW_ID], ["c3", KeyPart("c1", True, True)], [KeyPart(f"c{n}") for n in range(10)]])
def test_rows_are_stored_alike_by_sql_and_by_columns(
    spark: SparkSession, tmp_path: Path, key: list[KeyPart | str], vnode_count: int
) -> None:
    """Forty columns of all types, with NULLs.

    Rows with columns of their own, and with one struct of them. Intervals cannot be written in SQL.
    """
    values = {f"c{n}": list(_TYPES.items())[n % len(_TYPES)] for n in range(40)}
    columns = "; ".join([*(f"{name} {data_type}" for name, (data_type, _) in values.items()), f"{ROW_ID} bigint"])
    desc = table(5, columns, key, vnode_count=vnode_count)
    months = table(6, "id bigint; m interval year to month", ["id"])
    store = created(spark, tmp_path, desc, months)
    assert store._stored_texts(months) is None
    picked = [f"IF(id = {n % 7}, NULL, CAST({v} AS {t})) AS {name}" for n, (name, (t, v)) in enumerate(values.items())]
    rows = lazy(spark.range(7)).selectExpr(*picked, f"id << 20 AS {ROW_ID}", "IF(id = 3, -1L, 1L) AS _weight")
    texts = store._stored_texts(desc)
    assert texts is not None
    by_columns = store._stored_columns(desc).of(rows)
    by_sql = select(rows, texts)
    assert [(f.name, f.dataType) for f in by_sql.schema.fields] == [(f.name, f.dataType) for f in by_columns.schema.fields]
    assert repr(by_sql.collect()) == repr(by_columns.collect())
    wrapped = rows.selectExpr(f"struct({', '.join(rows.columns)}) AS whole")
    by_struct = wrapped.select(store._stored_struct(desc, "whole").alias("s")).select("s.*")
    assert repr(by_struct.collect()) == repr(by_columns.collect())
