"""Frames computed once, and those whose equal rows are summed."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.operators.frames import DriverLimitExceeded, Frames
from relstate_dagster.state_lib.collected import DriverLimits

_ROWS = "VALUES (1, 'a', 1L), (1, 'a', 1L), (2, 'b', 1L), (2, 'b', -1L), (3, NULL, 1L), (3, NULL, -1L) AS r(k, s, _weight)"
_SUMMED = [(1, "a", 2)]


def _bag(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


@pytest.mark.parametrize("held", [True, False], ids=["held", "checkpointed"])
@pytest.mark.parametrize("raw_first", [True, False])
def test_summed_whoever_came_first(spark: SparkSession, held: bool, raw_first: bool) -> None:
    frames = Frames(spark, held=held)
    df = spark.sql(f"SELECT * FROM {_ROWS}")
    if raw_first:
        frames.share(df)
    summed = frames.share(df, summed=True)
    assert _bag(summed) == _SUMMED
    assert frames.share(df, summed=True) is summed
    assert frames.share(summed) is summed
    assert frames.share(summed, summed=True) is summed
    assert sum(row[-1] for row in _bag(frames.share(df))) == 2, "the same bag, summed or not"


@pytest.mark.parametrize("held", [True, False], ids=["held", "checkpointed"])
def test_what_a_shared_frame_becomes_is_summed_apart(spark: SparkSession, held: bool) -> None:
    frames = Frames(spark, held=held)
    shared = frames.share(spark.sql("SELECT * FROM VALUES (1, 1L), (1, 1L) AS r(k, _weight)"))
    assert _bag(frames.share(shared, summed=True)) == [(1, 2)]
    assert frames.share(shared) is shared


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
    frames = Frames(spark, held=True)
    df = spark.sql(f"SELECT * FROM VALUES {rows} AS r(v, _weight)")
    assert frames.share(df, summed=True).count() == count


def test_rows_of_more_than_a_size_are_held_by_spark(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, 1L AS _weight FROM range(1000)")
    size = 16 * 1000
    frames = Frames(spark, held=True, limits=DriverLimits(held_bytes=size))
    small = frames.share(rows)
    assert (frames.rows_of(small) is None, frames.hint(small)) == (False, "broadcast")
    planned = Frames(spark, held=True, limits=DriverLimits(held_bytes=size - 1))
    with pytest.raises(DriverLimitExceeded) as more:
        planned.share(rows)
    assert more.value.limit == size - 1 < more.value.found
    large = Frames(spark, held=True, limits=DriverLimits(held_bytes=size - 1, is_final=True))
    shared = large.share(rows)
    assert (large.rows_of(shared), large.hint(shared)) == (None, None)
    assert _bag(shared) == _bag(rows)


def test_a_step_for_each_frame(spark: SparkSession, steps: list[DataFrame]) -> None:
    frames = Frames(spark, held=True)
    df = spark.sql(f"SELECT * FROM {_ROWS}")
    shared = frames.share(df)
    frames.share(df, summed=True)
    frames.share(shared, summed=True)
    assert len(steps) == 1, "what the driver holds it sums without Spark"
