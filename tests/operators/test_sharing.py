"""Rows computed once, those whose equal rows are summed, and what is known of them."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.operators.row_set import DriverLimitExceeded, RowSets
from relstate_dagster.state_lib.collected import DriverLimits

_ROWS = "VALUES (1, 'a', 1L), (1, 'a', 1L), (2, 'b', 1L), (2, 'b', -1L), (3, NULL, 1L), (3, NULL, -1L) AS r(k, s, _weight)"
_SUMMED = [(1, "a", 2)]


def _bag(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


@pytest.mark.parametrize("held", [True, False], ids=["held", "checkpointed"])
@pytest.mark.parametrize("raw_first", [True, False])
def test_summed_whoever_came_first(spark: SparkSession, held: bool, raw_first: bool) -> None:
    rows = RowSets(spark, shares_by_jobs=held).of(spark.sql(f"SELECT * FROM {_ROWS}"))
    if raw_first:
        rows.shared()
    summed = rows.shared(summed=True)
    assert _bag(summed.frame) == _SUMMED
    assert rows.shared(summed=True) is summed
    assert summed.shared() is summed
    assert summed.shared(summed=True) is summed
    assert sum(row[-1] for row in _bag(rows.shared().frame)) == 2, "the same bag, summed or not"


@pytest.mark.parametrize("held", [True, False], ids=["held", "checkpointed"])
def test_shared_rows_are_summed_apart(spark: SparkSession, held: bool) -> None:
    shared = RowSets(spark, shares_by_jobs=held).shared(spark.sql("SELECT * FROM VALUES (1, 1L), (1, 1L) AS r(k, _weight)"))
    assert _bag(shared.shared(summed=True).frame) == [(1, 2)]
    assert shared.shared() is shared


@pytest.mark.parametrize("keeps_bytes", [False, True])
def test_rows_are_kept_as_bytes_or_as_objects(spark: SparkSession, keeps_bytes: bool) -> None:
    """Those of both ways that Spark computes them: one at first use, the other for the driver, which cannot hold them."""
    before = set(spark._jsc.getPersistentRDDs())
    few = DriverLimits(held_bytes=1, is_final=True)
    found = [
        sets.shared(spark.sql(f"SELECT * FROM {_ROWS}"), summed=True)
        for sets in (
            RowSets(spark, keeps_bytes=keeps_bytes),
            RowSets(spark, shares_by_jobs=True, limits=few, keeps_bytes=keeps_bytes),
        )
    ]
    assert [_bag(rows.frame) for rows in found] == [_SUMMED, _SUMMED]
    kept = {number: rdd.getStorageLevel() for number, rdd in spark._jsc.getPersistentRDDs().items() if number not in before}
    assert len(kept) >= len(found)
    assert {level.deserialized() for level in kept.values()} == {not keeps_bytes}


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ("(CAST('0.0' AS DOUBLE), 1L), (CAST('-0.0' AS DOUBLE), -1L)", 2),
        ("(CAST('NaN' AS FLOAT), 1L), (CAST('NaN' AS FLOAT), 1L)", 1),
        ("(array(1, 2), 1L), (array(1, 2), -1L)", 0),
        ("(named_struct('a', 1), 1L), (named_struct('a', 1), 1L)", 1),
        ("(map('a', 1), 1L)", 1),
        ("(interval '1' day, 1L), (interval '24' hour, 1L)", 1),
        ("(1.50, 1L), (1.5, 1L)", 1),
    ],
    ids=["zeros", "NaN", "array", "struct", "map", "interval", "decimal"],
)
def test_rows_are_equal_if_no_query_can_tell_them_apart(spark: SparkSession, rows: str, count: int) -> None:
    df = spark.sql(f"SELECT * FROM VALUES {rows} AS r(v, _weight)")
    assert RowSets(spark, shares_by_jobs=True).shared(df, summed=True).frame.count() == count


def test_rows_of_more_than_a_size_are_held_by_spark(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, 1L AS _weight FROM range(1000)")
    size = 16 * 1000
    small = RowSets(spark, shares_by_jobs=True, limits=DriverLimits(held_bytes=size)).shared(rows)
    assert (small.most_rows, small.known_weight, small.total("_weight"), small.hint) == (1000, 1000, 1000, "broadcast")
    with pytest.raises(DriverLimitExceeded) as more:
        RowSets(spark, shares_by_jobs=True, limits=DriverLimits(held_bytes=size - 1)).shared(rows)
    assert more.value.limit == size - 1 < more.value.found
    shared = RowSets(spark, shares_by_jobs=True, limits=DriverLimits(held_bytes=size - 1, is_final=True)).shared(rows)
    assert (shared.most_rows, shared.known_weight, shared.total("_weight"), shared.hint) == (math.inf, None, 1000, None)
    assert _bag(shared.frame) == _bag(rows)


def test_a_step_for_each_frame(spark: SparkSession, steps: list[DataFrame]) -> None:
    rows = RowSets(spark, shares_by_jobs=True).of(spark.sql(f"SELECT * FROM {_ROWS}"))
    shared = rows.shared()
    rows.shared(summed=True)
    shared.shared(summed=True)
    assert len(steps) == 1, "what the driver holds it sums without Spark"


@pytest.mark.parametrize("held", [True, False], ids=["held", "checkpointed"])
def test_rows_with_a_flag(spark: SparkSession, held: bool) -> None:
    rows = "VALUES (1, 'a', true, 1L), (2, 'b', NULL, 1L), (3, 'c', false, 1L), (4, 'd', true, -1L) AS r(k, s, f, _weight)"
    shared = RowSets(spark, shares_by_jobs=held).shared(spark.sql(f"SELECT * FROM {rows}"))
    assert _bag(shared.where("f", ["s", "k"]).frame) == [("a", 1), ("d", 4)]
    derived = shared.derived(shared.frame.where("f").selectExpr("k AS n", "_weight"), {"n": "k"}, where="f")
    assert _bag(derived.shared(["n"]).frame) == [(1, 1), (4, -1)]
    assert (derived.shared(["n"]) is derived) == held, "what is known needs no job"
    assert (shared.values_at("s", [1, 4, 5]) is not None) == held
    assert (shared.may_retract, shared.is_empty, derived.is_empty) == (True, False, False)


def test_no_rows_of_no_columns(spark: SparkSession) -> None:
    """The group of a global aggregate has no columns; whether it exists is known."""
    shared = RowSets(spark, shares_by_jobs=True).shared(
        spark.sql("SELECT * FROM VALUES (1, true, 1L), (2, false, 1L) AS r(k, f, _weight)")
    )
    one = shared.derived(shared.frame, {}, where="f")
    assert (one.is_empty, one.shared() is one, shared.where("f", []).is_empty) == (False, True, False)
    none = RowSets(spark, shares_by_jobs=True).shared(shared.frame.where("k = 2"))
    assert (none.derived(shared.frame, {}, where="f").is_empty, none.where("f", []).is_empty) == (True, True)
