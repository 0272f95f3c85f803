"""Weighted rows that the driver holds: what cancels is dropped."""

from __future__ import annotations

import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.collected import collected, consolidated, frame_of

#: Rows that the driver sums.
_MOST = 1000


def _rows(*rows: tuple[int | None, Decimal | None, int]) -> pa.Table:
    k, d, weight = zip(*rows, strict=True)
    return pa.table(
        {"k": pa.array(k, pa.int32()), "_weight": pa.array(weight, pa.int64()), "d": pa.array(d, pa.decimal128(9, 2))}
    )


def _bag(rows: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def test_rows_that_cancel_are_dropped_and_equal_ones_summed() -> None:
    one, two = Decimal("1.00"), Decimal("2.00")
    rows = _rows((1, one, 1), (1, one, -1), (1, two, 1), (1, two, 1), (None, None, 1), (None, None, -1), (2, None, -1))
    found = consolidated(rows, _MOST)
    assert found.schema == rows.schema
    assert _bag(found) == [(1, 2, two), (2, -1, None)]


@pytest.mark.parametrize(
    "rows",
    [
        _rows((1, None, 1), (1, None, 1)),
        _rows((1, None, 1)).slice(0, 0),
        pa.table({"k": [1, 1]}),
        pa.table({"_weight": [1, -1]}),
        pa.table({"k": [[1], [1]], "_weight": [1, -1]}),
        pa.table({"k": [1.0, 1.0], "_weight": pa.array([None, None], pa.int64())}),
    ],
    ids=["one sign", "none", "no weight", "no columns", "lists", "weights unknown"],
)
def test_rows_left_as_they_are(rows: pa.Table) -> None:
    assert consolidated(rows, _MOST) is rows


def test_many_rows_are_left_as_they_are() -> None:
    rows = _rows((1, None, 1), (1, None, -1))
    assert consolidated(rows, 1) is rows
    assert consolidated(rows, 1, must_sum=True).num_rows == 0


@pytest.mark.parametrize("values", [["a", "a"], [b"a", b"a"], [float("nan")] * 2, [True, True], [None, None]], ids=str)
def test_types(values: list[object]) -> None:
    assert consolidated(pa.table({"k": values, "_weight": [1, -1]}), _MOST).num_rows == 0


def test_nothing_else_makes_frames_of_arrow_tables() -> None:
    root = Path(__file__).parents[2]
    modules = {
        path for package in ("jobs", "state_lib", "assets", "relstate_dagster") for path in (root / package).rglob("*.py")
    }
    found = {
        path.name
        for path in modules
        if re.search(r"(?<!_jsparkSession\.)createDataFrame\((?!\[)", path.read_text(encoding="utf-8"))
    }
    assert found == {"collected.py"}


@pytest.mark.spark
@pytest.mark.parametrize("sizes", [(1, 0, 1), (0, 0, 3), (2, 1, 0), (0,), (2, 3)])
def test_a_frame_has_the_rows_of_all_chunks(spark: SparkSession, sizes: tuple[int, ...]) -> None:
    chunks = [pa.array(range(n), pa.int64()) for n in sizes]
    rows = pa.table({"k": pa.chunked_array(chunks, pa.int64())})
    found = frame_of(spark, rows)
    assert sorted(row["k"] for row in found.collect()) == sorted(rows["k"].to_pylist())
    assert found.count() == sum(sizes)


@pytest.mark.spark
def test_the_few_rows_that_are_left_of_many_are_all_there(spark: SparkSession) -> None:
    keys = list(range(150_000))
    again = [k for k in keys if k % 50_000]
    rows = pa.table(
        {"k": pa.array(keys + again, pa.int64()), "_weight": pa.array([1] * len(keys) + [-1] * len(again), pa.int64())}
    )
    left = consolidated(rows, _MOST, must_sum=True)
    assert sorted(row["k"] for row in frame_of(spark, left).collect()) == [0, 50_000, 100_000]


#: A BIGINT and an INT, in bytes.
_BYTES = 8 + 4


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("rows", [0, 1, 99, 100])
def test_rows_up_to_a_size_are_brought_to_the_driver(spark: SparkSession, tasks: int, rows: int) -> None:
    df = spark.range(0, rows, 1, tasks).selectExpr("id", "CAST(id % 7 AS INT) AS g")
    found = collected(df, 100 * _BYTES)
    assert found is not None
    assert found.schema.names == ["id", "g"]
    assert sorted(found["id"].to_pylist()) == list(range(rows))


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("rows", [101, 102, 303, 5000])
def test_more_rows_are_not(spark: SparkSession, tasks: int, rows: int) -> None:
    df = spark.range(0, rows, 1, tasks).selectExpr("id", "CAST(id % 7 AS INT) AS g")
    assert collected(df, 100 * _BYTES) is None


def test_rows_that_another_plan_puts_into_fewer_tasks_are_all_there(spark: SparkSession) -> None:
    """What numbers them comes after all that moves them: none is dropped for its number."""
    df = spark.range(0, 60, 1, 5)
    frames = [df.coalesce(1), df.repartition(4, "id"), df.orderBy("id"), df.union(df).distinct(), df.limit(60), df.sample(1.0)]
    for frame in frames:
        found = collected(frame, 60 * 8)
        assert found is not None
        assert sorted(found["id"].to_pylist()) == list(range(60))


_ONE_TASK = """
from relstate_dagster.jobs.engine import SparkSettings, create_session
from relstate_dagster.state_lib.collected import collected

spark = create_session(SparkSettings(master="local[2]", driver_memory="1600m"))
texts = [f"md5(CAST(id + {n} AS STRING)) AS c{n}" for n in range(8)]
print(collected(spark.range(0, 3_000_000, 1, 1).selectExpr("id", *texts), 128 << 20))
"""


def test_a_task_that_has_far_too_many_does_not_fill_the_heap() -> None:
    """Its 0.8 GB are compared with a limit once they are there.

    Spark makes several copies of them: in a heap of 1.6 GB they never are.
    """
    done = subprocess.run([sys.executable, "-c", _ONE_TASK], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["None"]), done.stderr[-2000:]
