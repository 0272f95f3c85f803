"""When a lookup's values become a filter that reaches row groups and pages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from math import exp
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.lookup_keys import MOST_ONE_BY_ONE, PUSHED_ONE_BY_ONE, LookupKeys
from tests.sizes import Resized

_DAY = date(2026, 1, 1)


def _cents(n: int) -> Decimal:
    return Decimal(n).scaleb(-2)


def _file(rows: int, lower: Any, upper: Any) -> DataFile:
    known = lower is not None
    return DataFile("f", 1, rows, {}, {"id": lower} if known else {}, {"id": upper} if known else {})


@pytest.mark.parametrize(
    ("files", "values", "filtered"),
    [
        ([_file(100, 0, 99_999)], range(0, 40_000, 8), True),
        ([_file(100, 0, 99_999)], range(0, 100_000, 20), False),
        # Most of the rows are in the file that the values lie in.
        ([_file(100, 0, 99_999), _file(10, 100_000, 199_999)], range(0, 100_000, 20), False),
        ([_file(10, 0, 99_999), _file(100, 100_000, 199_999)], range(0, 100_000, 20), True),
        # Whole numbers that are not too many are a list.
        ([_file(100, 0, 999)], range(0, 1000, 10), True),
        ([_file(100, 7, 7)], range(-50, 50), True),
        ([_file(100, 0, 999)], [0, 999], True),
        # Where it is not known how many rows it leaves out.
        ([_file(100, None, None)], range(0, 400, 10), True),
        ([_file(100, "a", "z")], [f"b{n}" for n in range(40)], True),
        ([_file(90, _cents(0), _cents(70)), _file(90, _cents(500), _cents(900))], [_cents(n) for n in range(40)], True),
        ([_file(90, _cents(0), _cents(70)), _file(9, _cents(500), _cents(900))], [_cents(n) for n in range(40)], False),
        ([_file(100, _DAY, _DAY + timedelta(99))], [_DAY + timedelta(n) for n in range(40)], True),
        ([_file(100, _DAY, _DAY + timedelta(99))], [_DAY + timedelta(n) for n in range(90)], False),
        ([_file(5, 0, 999)], range(0, 400, 10), False),
        # One by one, where they are on few pages of the files.
        ([_file(40_000, n * 1000, n * 1000 + 999) for n in range(100)], range(0, 100_000, 2000), True),
        ([_file(40_000, 0, 100_000) for n in range(100)], range(0, 100_000, 2000), True),
    ],
)
def test_values_are_a_filter_where_they_leave_out_half_of_many_rows(
    spark: SparkSession, resized: Resized, files: Sequence[DataFile], values: Sequence[Any], filtered: bool
) -> None:
    resized(unfiltered_rows=50)
    type_name = {int: "bigint", str: "string", date: "date", Decimal: "decimal(9,2)"}[type(values[0])]
    rows = spark.sql(f"SELECT CAST(NULL AS {type_name}) AS id")
    assert (LookupKeys("id", tuple(values)).restrict(rows, "id", type_name, files) is not rows) == filtered


def test_many_values_are_listed_where_they_are_on_few_pages(spark: SparkSession) -> None:
    files = [_file(1_000_000, n * 1000, n * 1000 + 999) for n in range(10)]
    rows = spark.sql("SELECT CAST(id AS INT) AS id FROM range(-5, 10000)")
    wanted = LookupKeys("id", tuple(range(-5, 9000, 100)))
    found = [row["id"] for row in wanted.restrict(rows, "id", "int", files).collect()]
    assert sorted(found) == list(wanted.values), "and no others, as of a range"
    # A file of fifty pages, ten values of which some share a page.
    assert wanted.rows_read(files, "id") == pytest.approx(9 * 1_000_000 * (1 - exp(-0.2)))
    assert LookupKeys("id", (7, 8, 9)).rows_read(files, "id") == pytest.approx(3 * 20_000, rel=0.05)
    most = LookupKeys("id", tuple(range(0, 9000, 10))).rows_read(files, "id")
    assert 7_500_000 < most < 9_000_000, "files that have none are not read"
    assert LookupKeys("id", tuple(range(10_000))).rows_read(files, "id") == 10_000_000, "too many to be listed"
    assert LookupKeys("id", (7,)).rows_read([_file(1000, 0, 5000)], "id") == 1000, "so few are read as they are"


def test_pages_without_any_of_a_list_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "rows")
    written = spark.range(0, 600_000, 1, 1).selectExpr("id", "hash(id) AS other")
    written.write.option("parquet.page.row.count.limit", 1000).parquet(path)
    session = spark.newSession()
    for key, value in {PUSHED_ONE_BY_ONE: MOST_ONE_BY_ONE, "parquet.filter.dictionary.enabled": False}.items():
        session.conf.set(key, str(value).lower())
    session.conf.set("spark.sql.adaptive.enabled", "false")
    files = [_file(600_000, 0, 599_999)]
    for count in (20, MOST_ONE_BY_ONE, 3 * MOST_ONE_BY_ONE + 1):
        values = tuple(sorted(random.Random(count).sample(range(600_000), count)))
        rows = session.read.parquet(path)
        found = LookupKeys("id", values).restrict(rows, "id", "bigint", files, page_rows=1000)
        assert sorted(row["id"] for row in found.collect()) == list(values)
        read = _rows_out_of_scans(found)
        assert read <= 2 * 1000 * count, f"{read} rows read for {count}"


def _rows_out_of_scans(rows: DataFrame) -> int:
    """How many rows the scan of a frame that was computed has read."""
    scan = rows._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().apply("numOutputRows").value())
