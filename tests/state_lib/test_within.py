"""When a lookup's values become a filter that reaches row groups and pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from state_lib import within
from state_lib.delta_files import DataFile
from state_lib.within import Within

_DAY = date(2026, 1, 1)


def _cents(n: int) -> Decimal:
    return Decimal(n).scaleb(-2)


def _file(rows: int, lower: Any, upper: Any) -> DataFile:
    known = lower is not None
    return DataFile("f", 1, rows, {}, {"id": lower} if known else {}, {"id": upper} if known else {})


@pytest.mark.parametrize(
    ("files", "values", "filtered"),
    [
        ([_file(100, 0, 999)], range(0, 400, 10), True),
        ([_file(100, 0, 999)], range(0, 1000, 10), False),
        # Most of the rows are in the file that the values lie in.
        ([_file(100, 0, 999), _file(10, 1000, 1999)], range(0, 1000, 10), False),
        ([_file(10, 0, 999), _file(100, 1000, 1999)], range(0, 1000, 10), True),
        ([_file(100, 7, 7)], range(7, 8), True),
        ([_file(100, 7, 7)], range(-50, 50), False),
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
        ([_file(40_000, 0, 100_000) for n in range(100)], range(0, 100_000, 2000), False),
    ],
)
def test_values_are_a_filter_where_they_leave_out_half_of_many_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, files: Sequence[DataFile], values: Sequence[Any], filtered: bool
) -> None:
    monkeypatch.setattr(within, "RESTRICTED_ROWS", 50)
    type_name = {int: "bigint", str: "string", date: "date", Decimal: "decimal(9,2)"}[type(values[0])]
    rows = spark.sql(f"SELECT CAST(NULL AS {type_name}) AS id")
    assert (Within("id", tuple(values)).restrict(rows, "id", type_name, files) is not rows) == filtered


def test_many_values_are_listed_where_they_are_on_few_pages(spark: SparkSession) -> None:
    files = [_file(1_000_000, n * 1000, n * 1000 + 999) for n in range(10)]
    rows = spark.sql("SELECT CAST(id AS INT) AS id FROM range(-5, 10000)")
    wanted = Within("id", tuple(range(-5, 9000, 100)))
    found = [row["id"] for row in wanted.restrict(rows, "id", "int", files).collect()]
    assert sorted(found) == list(wanted.values), "and no others, as of a range"
    assert wanted.rows_read(files, "id") == 90 * 20_000
    assert Within("id", (7, 8, 9)).rows_read(files, "id") == 3 * 20_000
    assert Within("id", tuple(range(0, 9000, 10))).rows_read(files, "id") == 9_000_000, "files that have none are not read"
    assert Within("id", tuple(range(0, 10_000, 10))).rows_read(files, "id") == 10_000_000
    assert Within("id", (7,)).rows_read([_file(1000, 0, 5000)], "id") == 1000, "so few are read as they are"
