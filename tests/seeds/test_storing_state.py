"""*Storing State Using Relational Table*: the tables of each operator, and how reads merge what is not committed yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.table_schema import KeyPart, MergeRule, StateColumn, StateKind, StateTableDesc, StateTableSchema
from tests.seeds.shown import Shown


def test_one_row_is_one_key_value_pair(shown: Shown) -> None:
    """«encoding of some stateful executors in row-based format»: mv, top n, join, agg."""
    shown.run(
        """
        CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k));
        CREATE TABLE r (g INT, name STRING);
        INSERT INTO t VALUES (1, 1, 10), (2, 1, 30), (3, 2, 20);
        INSERT INTO r VALUES (1, 'a'), (1, 'b'), (3, 'c');
        CREATE MATERIALIZED VIEW sorted AS SELECT g, v FROM t ORDER BY v DESC;
        CREATE MATERIALIZED VIEW top AS SELECT k, v FROM t ORDER BY v DESC LIMIT 1;
        CREATE MATERIALIZED VIEW joined AS SELECT t.k, r.name FROM t LEFT JOIN r ON t.g = r.g;
        CREATE MATERIALIZED VIEW agg AS SELECT g, sum(v) AS s FROM t GROUP BY g;
        """
    )
    # mv: table_id | sort key | pk → materialized value. The key k is not shown, and is kept all the same.
    (mv,) = shown.tables("sorted", StateKind.MATERIALIZED_VIEW)
    assert shown.key(mv) == ["v desc", "k"]
    assert shown.state("sorted", mv) == [(1, 30, 2, 1), (2, 20, 3, 1), (1, 10, 1, 1)]
    # join: table_id | join_key | pk → materialized value. A left join also counts a left row's matches.
    (left,) = (t for t in shown.tables("joined") if t.schema.label == "left")
    assert shown.key(left) == ["g", "k"]
    assert [c.name for c in left.schema.columns] == ["k", "g", "_num_associations"]
    assert shown.state("joined", left) == [(1, 1, 2, 1), (2, 1, 2, 1), (3, 2, 0, 1)]
    # agg: table_id | group_key → agg_value.
    (sums,) = shown.tables("agg", StateKind.VALUE_STATE)
    assert shown.key(sums) == ["g"]
    assert [row[:2] for row in shown.state("agg", sums)] == [(1, 40), (2, 20)]
    # top n: table_id | sort key | pk → materialized value. The first rows are kept once more.
    whole, _ = shown.tables("top", StateKind.MATERIALIZED_INPUT)
    assert shown.key(whole) == ["v desc", "k"]
    assert shown.state("top", whole) == [(2, 30, 1), (3, 20, 1), (1, 10, 1)]
    assert shown.rows("SELECT * FROM top") == [(2, 30)]


def _table(spark: SparkSession, folder: Path) -> tuple[StateStore, StateTableDesc]:
    columns = tuple(StateColumn(name, "int") for name in ("pk", "a", "b"))
    schema = StateTableSchema("mv", StateKind.VALUE_STATE, columns, (KeyPart("pk"),), 1, ("pk",), MergeRule.NEWEST)
    desc = StateTableDesc(1, schema)
    store = StateStore(spark, StateFiles(str(folder / "state")), [desc])
    store.create()
    return store, desc


def _write(spark: SparkSession, table: StateTable, *rows: tuple[int, int, int, int]) -> None:
    """A change set: rows with their weight."""
    table.write(spark.createDataFrame(list(rows), "pk int, a int, b int, _weight bigint"))


def _rows(table: StateTable, **prefix: int) -> list[tuple[int, ...]]:
    return [tuple(row) for row in table.scan(prefix).collect()]


@pytest.mark.spark
def test_get(spark: SparkSession, tmp_path: Path) -> None:
    """insert [1, 11, 111], [2, 22, 222]; delete [2, 22, 222]; insert [3, 33, 333]; commit; insert [3, 3333, 3333]."""
    store, desc = _table(spark, tmp_path)
    table = store.state_table(1, epoch=1)
    _write(spark, table, (1, 11, 111, 1), (3, 33, 333, 1))
    version = store.append(1, [table.mem_table], txn_app_id="get", txn_version=1, user_metadata="1")
    table = store.state_table(desc.table_id, epoch=2, version=version)
    _write(spark, table, (3, 33, 333, -1), (3, 3333, 3333, 1))
    assert _rows(table, pk=1) == [(1, 11, 111)]
    assert _rows(table, pk=2) == []
    assert _rows(table, pk=3) == [(3, 3333, 3333)]


@pytest.mark.spark
def test_scan(spark: SparkSession, tmp_path: Path) -> None:
    """«If a pk exists in both KV state store and memory, result of MemTableIter is returned»: 1 → 4 → 5 → 6."""
    store, desc = _table(spark, tmp_path)
    table = store.state_table(1, epoch=1)
    _write(spark, table, *((pk, 0, 0, 1) for pk in (1, 3, 4, 5)))
    version = store.append(1, [table.mem_table], txn_app_id="scan", txn_version=1, user_metadata="1")
    table = store.state_table(desc.table_id, epoch=2, version=version)
    _write(spark, table, (3, 0, 0, -1), (4, 0, 0, -1), (4, 1, 1, 1), (6, 1, 1, 1))
    assert _rows(table) == [(1, 0, 0), (4, 1, 1), (5, 0, 0), (6, 1, 1)]
    # What the epoch has not committed, those who read the storage table do not see.
    assert [row["pk"] for row in table.storage.scan().collect()] == [1, 3, 4, 5]
