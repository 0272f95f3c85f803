from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.errors import PlanError, StateError
from relstate_dagster.state_lib.row_encoding import encode_columns
from relstate_dagster.state_lib.serial import SERIAL_EPOCH_MS, next_base_ms, row_id_of_ordinal, vnode_of_row_id
from relstate_dagster.state_lib.size_settings import Tuning
from relstate_dagster.state_lib.table_schema import KeyPart, MergeRule, StateColumn, StateKind, StateTableDesc, StateTableSchema
from relstate_dagster.state_lib.vnode import (
    check_vnode_count,
    fitting_vnode_count,
    row_vnode,
    table_vnode,
    vnode_of,
    vnodes_of_row,
)
from tests.serials import Serial

COUNTS = st.sampled_from([1 << n for n in range(11)])

_VNODE_BYTES = Tuning().vnode_bytes


def table(columns: dict[str, str], distribution: tuple[str, ...]) -> StateTableSchema:
    return StateTableSchema(
        "t",
        StateKind.VALUE_STATE,
        tuple(StateColumn(name, ddl) for name, ddl in columns.items()),
        tuple(KeyPart(name) for name in columns),
        len(distribution),
        distribution,
        MergeRule.NEWEST,
    )


def test_a_vnode_is_crc32_of_the_encoded_distribution_key() -> None:
    encoded = bytes.fromhex("0180000001")
    assert row_vnode(table({"a": "int"}, ("a",)), 1024, {"a": 1}) == zlib.crc32(encoded) % 1024


@given(st.binary(), COUNTS)
def test_doubling_splits_each_vnode_into_two(key: bytes, count: int) -> None:
    of_bytes, row = table({"a": "binary"}, ("a",)), {"a": key}
    if count < 1024:
        assert row_vnode(of_bytes, 2 * count, row) in (row_vnode(of_bytes, count, row) + k * count for k in (0, 1))


@given(st.binary(), COUNTS, COUNTS)
def test_a_row_lies_where_one_of_the_counts_so_far_puts_it(key: bytes, first: int, count: int) -> None:
    first, count = sorted((first, count))
    desc = StateTableDesc(1, table({"a": "binary"}, ("a",)), count, first)
    had = [1 << n for n in range(11) if first <= 1 << n <= count]
    assert vnodes_of_row(desc, {"a": key}) == {row_vnode(desc.schema, c, {"a": key}) for c in had}
    assert len(vnodes_of_row(replace(desc, first_vnode_count=count), {"a": key})) == 1


@pytest.mark.parametrize("count", [0, 3, -4, 2048])
def test_counts_are_powers_of_two_up_to_1024(count: int) -> None:
    with pytest.raises(PlanError, match="power of two"):
        check_vnode_count(count)


def test_a_singleton_has_one_vnode() -> None:
    assert row_vnode(table({"a": "int"}, ()), 16, {"a": 5}) == 0
    assert fitting_vnode_count(table({"a": "int"}, ()), 1, 100 * _VNODE_BYTES) == 1


@pytest.mark.parametrize(
    ("count", "stored", "fitting"),
    [(1, 0, 1), (1, _VNODE_BYTES, 1), (1, _VNODE_BYTES + 1, 2), (2, 7 * _VNODE_BYTES, 8), (8, 0, 8), (512, 10**15, 1024)],
)
def test_a_count_doubles_until_it_fits_and_never_shrinks(count: int, stored: int, fitting: int) -> None:
    assert fitting_vnode_count(table({"a": "int"}, ("a",)), count, stored) == fitting


@given(st.integers(0, 2**41 - 1), st.integers(0, 1023), st.integers(0, 4095))
def test_a_row_id_taken_apart_and_put_together_is_the_same(time_ms: int, vnode: int, sequence: int) -> None:
    serial = Serial(time_ms, vnode, sequence)
    assert Serial.from_int(int(serial)) == serial
    assert 0 <= int(serial) < 2**63


@given(st.integers(0, 2**40), st.integers(0, 2**30))
def test_a_run_of_ids_is_in_one_vnode_and_the_next_run_in_the_next(base_ms: int, n: int) -> None:
    first, found = Serial.of_ordinal(base_ms, 0), Serial.of_ordinal(base_ms, n)
    assert (first.time_ms, first.sequence) == (base_ms, 0)
    passed = first.vnode + (n >> 12)
    assert found == Serial(base_ms + (passed >> 10), passed & 0x3FF, n & 0xFFF)


@pytest.mark.parametrize("count", [1, 2, 64, 1024])
def test_small_batches_are_spread_over_the_vnodes_of_a_table(count: int) -> None:
    """Epochs of a schedule, each minute, and of a loop, each few milliseconds."""
    batches = 64 * count
    for step_ms in (60_000, 3):
        times = [77_000_000_000 + n * step_ms for n in range(batches)]
        met = Counter(Serial.of_ordinal(base_ms, 5).vnode % count for base_ms in times)
        assert len(met) == count
        assert max(met.values()) < 2 * batches / count, "none has much more than the others"


def test_a_large_batch_has_as_many_rows_in_each_vnode() -> None:
    # Five million rows: more than a millisecond holds.
    runs = Counter(Serial.of_ordinal(77, n).vnode % 64 for n in range(0, 5_000_000, 4096))
    assert max(runs.values()) - min(runs.values()) <= 1
    assert Serial.of_ordinal(77, 5_000_000).time_ms > 77


@given(st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 2**24)), min_size=2, max_size=12))
def test_ids_grow_in_each_vnode_whatever_the_clock_does(batches: list[tuple[int, int]]) -> None:
    """Restarts and clocks that are set back: the time of a batch is any, its ids are after all before."""
    newest: dict[int, int] = {}
    last: tuple[int | None, int] = (None, 0)
    for clock_ms, rows in batches:
        base_ms = next_base_ms(SERIAL_EPOCH_MS + 10**9 + clock_ms, *last)
        for n in sorted({0, rows // 2, max(rows - 1, 0)}):
            found = Serial.of_ordinal(base_ms, n)
            assert int(found) > newest.get(found.vnode, -1)
            newest[found.vnode] = int(found)
        last = base_ms, rows


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**30))
def test_a_batch_begins_after_every_id_before_it(now_ms: int, last_base_ms: int, last_rows: int) -> None:
    base_ms = next_base_ms(now_ms, last_base_ms, last_rows)
    last_id = Serial.of_ordinal(last_base_ms, max(last_rows - 1, 0))
    assert Serial.of_ordinal(base_ms, 0) > last_id
    assert base_ms >= now_ms - SERIAL_EPOCH_MS


def test_the_first_batch_begins_now() -> None:
    assert next_base_ms(SERIAL_EPOCH_MS + 5, None, 0) == 5


def test_time_runs_out_with_an_error() -> None:
    with pytest.raises(StateError, match="41 bits"):
        next_base_ms(SERIAL_EPOCH_MS + 2**41, None, 0)


@pytest.mark.spark
def test_spark_computes_the_same_vnodes_and_row_ids(spark: SparkSession) -> None:
    by_hash = table({"a": "bigint", "b": "string"}, ("b", "a"))
    by_row_id = table({ROW_ID: "bigint"}, (ROW_ID,))
    base_ms = 77_000_000_000
    ids = row_id_of_ordinal(base_ms, F.col("n")).alias(ROW_ID)
    rows = (
        spark.range(200)
        .select((F.col("id") * F.col("id") * 1000).alias("n"))
        .withColumns({ROW_ID: ids, "a": F.col("n") - 5_000_000, "b": F.concat(F.lit("x\0"), F.col("n").cast("string"))})
    )
    found = rows.select(
        "*",
        table_vnode(by_hash, 64).alias("hashed"),
        vnode_of(encode_columns(by_hash.columns, ("b", "a")), 1024).alias("hashed_wide"),
        vnode_of_row_id(F.col(ROW_ID)).alias("carried"),
        table_vnode(by_row_id, 16).alias("of_row_id"),
        table_vnode(table({"a": "bigint"}, ()), 16).alias("singleton"),
    ).collect()
    for row in found:
        assert row[ROW_ID] == int(Serial.of_ordinal(base_ms, row["n"]))
        assert row["carried"] == Serial.from_int(row[ROW_ID]).vnode
        assert row["of_row_id"] == row_vnode(by_row_id, 16, row.asDict()) == row["carried"] % 16
        assert row["hashed"] == row_vnode(by_hash, 64, row.asDict()) == row["hashed_wide"] % 64
        assert row["singleton"] == 0
    assert len({row["hashed"] for row in found}) > 32
