"""Reads over MemTable and StorageTable: in key order, by prefix, with values kept to the bit."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T
from stores import created, table

from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.state_store import StateStore
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.table_schema import KeyPart, MergeRule, StateTableDesc

pytestmark = pytest.mark.spark


class Epochs:
    """A table of one store, epoch by epoch."""

    def __init__(self, spark: SparkSession, path: Path, desc: StateTableDesc) -> None:
        self._spark = spark
        self._store: StateStore = created(spark, path, desc)
        self._epoch = 0
        self._desc = desc
        self._begin(None)

    def _begin(self, version: int | None) -> None:
        self._epoch += 1
        self.table: StateTable = self._store.state_table(self._desc.table_id, epoch=self._epoch, version=version)

    def write(self, *rows: tuple[Any, ...], weight: int = 1) -> None:
        fields = [T.StructField(c.name, parse_type(c.data_type)) for c in self._desc.schema.columns]
        schema = T.StructType([*fields, T.StructField("_weight", T.LongType())])
        self.table.write(self._spark.createDataFrame([(*row, weight) for row in rows], schema))

    def commit(self) -> None:
        commit = {"txn_app_id": "t", "txn_version": self._epoch, "user_metadata": str(self._epoch)}
        self._begin(self._store.append(self._epoch, [self.table.mem_table], **commit))

    def scan(self, *args: Any) -> list[Row]:
        return self.table.scan(*args).collect()


def test_scan_is_in_key_order_of_the_prefix_and_of_the_columns_asked(spark: SparkSession, tmp_path: Path) -> None:
    key = [KeyPart("g"), KeyPart("v", descending=True, nulls_last=True)]
    epochs = Epochs(spark, tmp_path, table(1, "g string; v double; w int", key))
    epochs.write(("a", 1.0, 1), ("a", None, 2), ("a", float("nan"), 3), ("b", 5.0, 4), (None, 6.0, 5))
    epochs.commit()
    epochs.write(("a", 1.0, 10))
    assert [row["w"] for row in epochs.scan()] == [5, 3, 10, 2, 4]
    assert sorted(row["w"] for row in epochs.scan({"g": "a"}, ["w"])) == [2, 3, 10]
    assert [row["v"] for row in epochs.scan({"g": "a"}, ["g", "v"])][1:] == [1.0, None]
    assert len(epochs.scan({"g": None})) == 1
    assert [row["w"] for row in epochs.scan({"g": "a", "v": float("nan")})] == [3]
    with pytest.raises(StateError, match="not the first of the key"):
        epochs.scan({"v": 1.0})


def test_keys_of_any_type_find_their_row(spark: SparkSession, tmp_path: Path) -> None:
    utc = dt.timezone.utc
    types = "a timestamp; b timestamp_ntz; c binary; d decimal(38,38); e struct<x:int,y:array<string>>; f boolean"
    epochs = Epochs(spark, tmp_path, table(1, types + "; i interval day to second; n int", [*"abcdefi"]))
    row = (dt.datetime(2013, 1, 1, 5, tzinfo=utc), dt.datetime(2013, 3, 10, 2, 30), b"\x00\xff", Decimal("-1e-38"),
           (1, ["\0"]), True, dt.timedelta(days=-1, microseconds=7), 9)  # fmt: skip
    wanted = dict(zip("abcdefi", row[:7], strict=True))
    epochs.write(row)
    assert [found["n"] for found in epochs.scan(wanted)] == [9]
    epochs.commit()
    (found,) = epochs.scan(wanted)
    assert (found["n"], found["i"], bytes(found["c"]), found["e"]["y"]) == (9, row[6], row[2], ["\0"])
    assert epochs.scan({**wanted, "e": (1, None)}) == []


def test_stored_values_are_kept_to_the_bit(spark: SparkSession, tmp_path: Path) -> None:
    """Keys are normalised, values are not: −0.0 stays −0.0, NaN stays NaN."""
    epochs = Epochs(spark, tmp_path, table(1, "k double; v double; m map<string,int>; n void", ["k"]))
    epochs.write((-0.0, -0.0, {"a": 1}, None), (float("nan"), float("nan"), None, None))
    epochs.commit()
    zero, nan = epochs.scan()
    assert str(zero["v"]) == "-0.0"
    assert (zero["m"], zero["n"]) == ({"a": 1}, None)
    assert nan["v"] != nan["v"]
    assert [row["m"] for row in epochs.scan({"k": 0.0})] == [{"a": 1}]


def test_change_sets_are_merged_by_the_rule_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    newest = Epochs(spark, tmp_path / "newest", table(1, "k int; v int", ["k"]))
    summed = Epochs(spark, tmp_path / "summed", table(2, "k int; v int", ["k", "v"], MergeRule.SUM))
    for epochs in (newest, summed):
        assert epochs.table.mem_table.is_empty
        epochs.write((1, 5), weight=-1)
        epochs.write((1, 6), (2, 7))
        assert not epochs.table.mem_table.is_empty
    # An update is −1 and +1 of one key; the row wins over the tombstone.
    assert [tuple(row) for row in newest.scan()] == [(1, 6), (2, 7)]
    with pytest.raises(StateError, match=r"lacks \['v'\]"):
        newest.table.write(spark.createDataFrame([(1, 1)], "k int, _weight bigint"))
    summed.write((1, 5), (2, 7), (2, 7))
    assert [tuple(row) for row in summed.scan()] == [(1, 6, 1), (2, 7, 3)]


def test_an_empty_key_has_one_row(spark: SparkSession, tmp_path: Path) -> None:
    """The state of an aggregate without GROUP BY."""
    epochs = Epochs(spark, tmp_path, table(1, "total bigint", []))
    assert epochs.scan() == []
    epochs.write((5,))
    epochs.commit()
    epochs.write((5,), weight=-1)
    epochs.write((6,))
    assert epochs.scan() == [(6,)]
    epochs.commit()
    epochs.write((6,), weight=-1)
    assert epochs.scan() == []
