"""Get and Scan over MemTable and StorageTable, as seed ``Storing State Using Relational Table`` tells them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stores import created, table

from state_lib.errors import StateError
from state_lib.state_table import StateTable
from state_lib.table_schema import KeyPart, MergeRule

pytestmark = pytest.mark.spark


def keys(state_table: StateTable) -> list[int]:
    return [row["pk"] for row in state_table.scan().collect()]


def test_get(spark: SparkSession, tmp_path: Path) -> None:
    """The first column is the key; after the commit, a new record is written under key 3."""
    state_table = created(spark, tmp_path, table(1, "pk int; a int; b int", ["pk"])).state_table(1, epoch=1)
    state_table.insert((1, 11, 111))
    state_table.insert((2, 22, 222))
    state_table.delete((2, 22, 222))
    state_table.insert((3, 33, 333))

    state_table.commit(1)

    state_table.update((3, 3333, 3333))

    assert state_table.get_row(1) == (1, 11, 111)
    assert state_table.get_row(2) is None
    assert state_table.get_row(3) == (3, 3333, 3333)


def test_scan(spark: SparkSession, tmp_path: Path) -> None:
    """Where a key is in both, the MemTable's row is the one that comes out, in key order."""
    state_table = created(spark, tmp_path, table(1, "pk int; v string", ["pk"])).state_table(1, epoch=1)
    for pk in (1, 3, 4, 5):
        state_table.insert((pk, "storage"))
    state_table.commit(1)

    state_table.delete((3, "storage"))
    state_table.update((4, "mem"))
    state_table.insert((6, "mem"))

    assert keys(state_table) == [1, 4, 5, 6]
    assert [row["v"] for row in state_table.scan().collect()] == ["storage", "mem", "storage", "mem"]
    # Nothing of it is committed yet.
    assert [row["pk"] for row in state_table.storage.scan().collect()] == [1, 3, 4, 5]
    state_table.commit(2)
    assert keys(state_table) == [1, 4, 5, 6]


@pytest.mark.parametrize("merge", MergeRule)
def test_writes_that_contradict_the_state_raise(spark: SparkSession, tmp_path: Path, merge: MergeRule) -> None:
    desc = table(42, "city string; day date; n int", ["city", "day"], merge, label="sum(n)", vnode_count=8)
    state_table = created(spark, tmp_path, desc).state_table(42, epoch=7)
    import datetime as dt

    day = dt.date(2013, 1, 1)
    state_table.insert({"city": "JFK", "day": day, "n": 1})
    place = r"sum\(n\) \(table_id 42, vnode \d\), key \{'city': 'JFK', 'day': datetime.date\(2013, 1, 1\)\}, epoch 7"
    with pytest.raises(StateError, match=place + ": inserted, but it exists"):
        state_table.insert(("JFK", day, 2))
    state_table.update(("JFK", day, 3))
    state_table.delete(("JFK", day, 3))
    for write in (state_table.delete, state_table.update):
        with pytest.raises(StateError, match="but it does not exist"):
            write(("JFK", day, 3))
    state_table.insert(("JFK", day, 4))
    assert [tuple(row)[:3] for row in state_table.scan({"city": "JFK"}).collect()] == [("JFK", day, 4)]
    with pytest.raises(StateError, match="a row of 1 values"):
        state_table.insert(("JFK",))
    with pytest.raises(StateError, match="a row of columns"):
        state_table.insert({"city": "JFK"})
    with pytest.raises(StateError, match="epoch 8, but epoch 7"):
        state_table.commit(8)


def test_scan_is_in_key_order_of_the_prefix_and_of_the_columns_asked(spark: SparkSession, tmp_path: Path) -> None:
    key = [KeyPart("g"), KeyPart("v", descending=True, nulls_last=True)]
    state_table = created(spark, tmp_path, table(1, "g string; v double; w int", key)).state_table(1, epoch=1)
    for row in [("a", 1.0, 1), ("a", None, 2), ("a", float("nan"), 3), ("b", 5.0, 4), (None, 6.0, 5)]:
        state_table.insert(row)
    state_table.commit(1)
    state_table.update(("a", 1.0, 10))
    assert [row["w"] for row in state_table.scan().collect()] == [5, 3, 10, 2, 4]
    assert [row["w"] for row in state_table.scan({"g": "a"}, ["w"]).collect()] != []
    assert [row["v"] for row in state_table.scan({"g": "a"}, ["g", "v"]).collect()][1:] == [1.0, None]
    assert state_table.scan({"g": None}).count() == 1
    assert state_table.get_row("a", float("nan"))["w"] == 3  # type: ignore[index]
    with pytest.raises(StateError, match="not the first of the key"):
        state_table.scan({"v": 1.0})
    with pytest.raises(StateError, match="not of the columns"):
        state_table.get_row("a")


def test_keys_of_any_type_find_their_row(spark: SparkSession, tmp_path: Path) -> None:
    import datetime as dt
    from decimal import Decimal

    utc = dt.timezone.utc
    types = "a timestamp; b timestamp_ntz; c binary; d decimal(38,38); e struct<x:int,y:array<string>>; f boolean"
    desc = table(1, types + "; i interval day to second; n int", [*"abcdefi"])
    row = (dt.datetime(2013, 1, 1, 5, tzinfo=utc), dt.datetime(2013, 3, 10, 2, 30), b"\x00\xff", Decimal("-1e-38"),
           (1, ["\0"]), True, dt.timedelta(days=-1, microseconds=7), 9)  # fmt: skip
    state_table = created(spark, tmp_path, desc).state_table(1, epoch=1)
    state_table.insert(row)
    assert state_table.get_row(*row[:7])["n"] == 9  # type: ignore[index]
    state_table.commit(1)
    found = state_table.get_row(*row[:7])
    assert found is not None
    assert (found["n"], found["i"], bytes(found["c"]), found["e"]["y"]) == (9, row[6], row[2], ["\0"])
    assert state_table.get_row(*row[:4], (1, None), *row[5:7]) is None


def test_stored_values_are_kept_to_the_bit(spark: SparkSession, tmp_path: Path) -> None:
    """Keys are normalised, values are not: −0.0 stays −0.0, NaN stays NaN."""
    desc = table(1, "k double; v double; m map<string,int>; n void", ["k"])
    state_table = created(spark, tmp_path, desc).state_table(1, epoch=1)
    state_table.insert((-0.0, -0.0, {"a": 1}, None))
    state_table.insert((float("nan"), float("nan"), None, None))
    state_table.commit(1)
    zero, nan = state_table.scan().collect()
    assert str(zero["v"]) == "-0.0"
    assert (zero["m"], zero["n"]) == ({"a": 1}, None)
    assert nan["v"] != nan["v"]
    with pytest.raises(StateError, match="exists"):
        state_table.insert((0.0, 1.0, None, None))


def test_change_sets_and_single_rows(spark: SparkSession, tmp_path: Path) -> None:
    newest = table(1, "k int; v int", ["k"])
    summed = table(2, "k int; v int", ["k", "v"], MergeRule.SUM)
    store = created(spark, tmp_path, newest, summed)
    changes = spark.createDataFrame([(1, 5, -1), (1, 6, 1), (2, 7, 1)], "k int, v int, _weight bigint")

    value_state = store.state_table(1, epoch=1)
    value_state.write(changes.select("_weight", "v", "k"))
    # An update is −1 and +1 of one key; the row wins over the tombstone.
    assert [tuple(row) for row in value_state.scan().collect()] == [(1, 6), (2, 7)]
    with pytest.raises(StateError, match="which is newer is not known"):
        value_state.insert((3, 1))
    with pytest.raises(StateError, match=r"lacks \['v'\]"):
        value_state.write(changes.drop("v"))
    with pytest.raises(StateError, match="newest epoch wins"):
        value_state.add((1, 1), 2)

    weighted = store.state_table(2, epoch=1)
    weighted.write(changes)
    weighted.add((1, 5), 1)
    weighted.add((2, 7), 2)
    assert [tuple(row) for row in weighted.scan().collect()] == [(1, 6, 1), (2, 7, 3)]
    assert weighted.mem_table.has_change_sets


def test_an_empty_key_has_one_row(spark: SparkSession, tmp_path: Path) -> None:
    """The state of an aggregate without GROUP BY."""
    state_table = created(spark, tmp_path, table(1, "total bigint", [])).state_table(1, epoch=1)
    assert state_table.get_row() is None
    state_table.insert((5,))
    state_table.commit(1)
    state_table.update((6,))
    assert state_table.get_row() == (6,)
    state_table.delete((6,))
    assert state_table.scan().collect() == []
