"""Rows of a change set as people see them; whatever is in them, an epoch that has been published does not fail for it."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.view_epoch.shown_rows import SHOWN_ROWS, changed_rows

_FAR = 253402300800 * 10**6  # the first microsecond of the year 10000


def test_values_of_all_types() -> None:
    columns = {
        "n": pa.array([1, None], pa.int32()),
        "d": pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(10, 2)),
        "at": pa.array([0, _FAR], pa.timestamp("us", "UTC")),
        "local": pa.array([-_FAR * 2, 0], pa.timestamp("us")),
        "day": pa.array([0, 2932897], pa.date32()),
        "bytes": pa.array([b"\x00\xff", None], pa.binary()),
        "list": pa.array([[1, 2], []], pa.list_(pa.int32())),
        "struct": pa.array([{"at": _FAR}, None], pa.struct([("at", pa.timestamp("us", "UTC"))])),
        "text": pa.array(["a" * 1000, "b"]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "yes": pa.array([True, None]),
        "nothing": pa.nulls(2),
        "_op": pa.array([1, -1], pa.int64()),
    }
    shown = changed_rows(pa.table(columns), "_op")
    assert shown.columns == ("±", *list(columns)[:-1])
    first, second = (dict(zip(shown.columns, row, strict=True)) for row in shown.rows)
    assert (first["±"], second["±"]) == ("+", "−")
    assert (first["n"], second["n"], first["d"], first["bytes"], first["yes"]) == ("1", None, "1.50", "0x00ff", "true")
    assert (first["day"], first["list"]) == ("1970-01-01", "[1, 2]")
    assert len(first["text"] or "") == 200
    # Python has no such year.
    assert (second["nothing"], second["struct"], second["map"]) == (None, "…", None)


@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_are_as_spark_writes_them(spark: SparkSession, zone: str | None) -> None:
    micros = [0, 1, 10, 123456, 120000, 500000, 999999, -1, -1000000, 1356998400 * 10**6, 1356998410 * 10**6]
    rows = pa.table({"at": pa.array(micros, pa.timestamp("us", zone)), "_op": [1] * len(micros)})
    kind = "TIMESTAMP" if zone else "TIMESTAMP_NTZ"
    values = ", ".join(f"({micro}L)" for micro in micros)
    expected = spark.sql(f"SELECT CAST(CAST(timestamp_micros(n) AS {kind}) AS STRING) AS s FROM VALUES {values} AS t (n)")
    with_all = [row for start in range(0, len(micros), SHOWN_ROWS) for row in changed_rows(rows.slice(start), "_op").rows]
    assert [row[1] for row in with_all[: len(micros)]] == [row.s for row in expected.collect()]


def test_only_some_are_shown() -> None:
    rows = pa.table({"n": range(100), "_op": [1] * 100})
    assert len(changed_rows(rows, "_op").rows) == SHOWN_ROWS
    assert changed_rows(rows.slice(0, 0), "_op").rows == ()
