"""Statistics in the log: those that we write bound the data, and those that others wrote are not trusted too far."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.state_lib.lake.commit import create_plain_table, write_deltalake
from relstate_dagster.state_lib.lake.statistics import data_files
from relstate_dagster.state_lib.lake.table import DeltaTable
from relstate_dagster.state_lib.lookup_keys import LookupKeys

_NAN = float("nan")
_UTC = dt.timezone.utc

#: For each type the values that bounds get wrong most easily.
_COLUMNS: dict[str, pa.Array] = {
    "tiny": pa.array([-128, 0, 127], pa.int8()),
    "small": pa.array([-32768, 0, 32767], pa.int16()),
    "whole": pa.array([-(2**31), 0, 2**31 - 1], pa.int32()),
    "big": pa.array([-(2**63), 0, 2**63 - 1], pa.int64()),
    "unsigned": pa.array([Decimal(0), Decimal(1), Decimal("12345678901234567891")], pa.decimal128(20, 0)),
    "money": pa.array([Decimal("-1234567890123456.78"), None, Decimal("1234567890123456.78")], pa.decimal128(18, 2)),
    "price": pa.array([Decimal("-9999999999999.99"), None, Decimal("1234567890123.45")], pa.decimal128(15, 2)),
    "widest": pa.array([Decimal("-" + "9" * 38), Decimal(0), Decimal("9" * 38)], pa.decimal128(38, 0)),
    "finest": pa.array([Decimal("0." + "0" * 37 + "1"), None, Decimal("0.3")], pa.decimal128(38, 38)),
    "nan": pa.array([1.0, _NAN, -0.0], pa.float64()),
    "only_nan": pa.array([_NAN, _NAN, None], pa.float64()),
    "infinite": pa.array([float("-inf"), 0.1, float("inf")], pa.float32()),
    "text": pa.array(["a" * 100, "b", "x" * 100]),
    "odd_text": pa.array(["\ud7ff" * 50, "\x7f" * 100, "\U0010ffff" * 40]),
    "line_text": pa.array(["\u2028", "\u0085", "\n"]),
    "bytes": pa.array([b"\x00", b"\xff" * 100, b""], pa.binary()),
    "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "instant": pa.array([-1, 1_577_836_800_123_456, 253_402_300_799_999_999], pa.timestamp("us", "UTC")),
    "local": pa.array([-1001, 1_577_836_800_123_456, 253_402_300_799_999_999], pa.timestamp("us")),
    "flag": pa.array([True, False, None]),
    "nothing": pa.array([None, None, None], pa.int64()),
    "record": pa.array(
        [{"x": 1, "y": Decimal("12345678901234567891"), "z": {"q": _NAN}}, {"x": 2, "y": None, "z": None}, None],
        pa.struct([("x", pa.int64()), ("y", pa.decimal128(20, 0)), ("z", pa.struct([("q", pa.float64())]))]),
    ),
    "list": pa.array([[1.0, _NAN], [], None], pa.list_(pa.float64())),
}
_ROWS = pa.table({"k": pa.array([1, 2, 3], pa.int64()), **_COLUMNS})


def _append(path: str) -> None:
    write_deltalake(DeltaTable(path), _ROWS, mode="append")


def _replace(path: str) -> None:
    _append(path)
    write_deltalake(DeltaTable(path), _ROWS, mode="overwrite", predicate="k <= 3")


def _merge(path: str) -> None:
    write_deltalake(DeltaTable(path), _ROWS.slice(0, 1), mode="append")
    merging = DeltaTable(path).merge(_ROWS, "v.k = c.k", source_alias="c", target_alias="v")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def _compact(path: str) -> None:
    for n in range(3):
        write_deltalake(DeltaTable(path), _ROWS.slice(n, 1), mode="append")
    table = DeltaTable(path)
    table.optimize.compact()
    assert len(data_files(table)) == 1


def _checkpoint(path: str) -> None:
    _append(path)
    DeltaTable(path).create_checkpoint()
    (Path(path) / "_delta_log" / f"{0:020}.json").unlink()


_WRITERS: dict[str, Callable[[str], None]] = {
    "append": _append,
    "replace": _replace,
    "merge": _merge,
    "compact": _compact,
    "checkpoint": _checkpoint,
}


@pytest.fixture(params=_WRITERS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    schema = deltalake.Schema.from_arrow(_ROWS.schema)
    DeltaTable.create(path, schema, configuration={"delta.enableChangeDataFeed": "true"}, raise_if_key_not_exists=False)
    _WRITERS[request.param](path)
    return path


def _raw_bounds(path: str) -> dict[str, tuple[Any, Any]]:
    """What the newest commit that added a file says, or the checkpoint."""
    log = Path(path) / "_delta_log"
    logged = [json.loads(line) for commit in sorted(log.glob("*.json")) for line in commit.open()]
    adds = [action["add"]["stats"] for action in logged if "add" in action]
    for checkpoint in log.glob("*.parquet"):
        adds = [add["stats"] for add in pq.read_table(checkpoint)["add"].to_pylist() if add]
    stats = json.loads(adds[-1], parse_float=Decimal, parse_int=Decimal)
    assert stats["numRecords"] == 3
    assert set(stats["minValues"]) == set(stats["maxValues"])
    return {name: (stats["minValues"][name], stats["maxValues"][name]) for name in stats["minValues"]}


def test_bounds_in_the_log_bound_the_data(written: str) -> None:
    bounds = _raw_bounds(written)
    for name in ("tiny", "small", "whole", "big", "price"):
        assert bounds[name] == (pc.min(_ROWS[name]).as_py(), pc.max(_ROWS[name]).as_py()), name
    assert bounds["day"] == ("0001-01-01", "9999-12-31")
    for name in ("text", "odd_text", "line_text"):
        texts = [text for text in _ROWS[name].to_pylist() if text is not None]
        assert bounds[name][0] <= min(texts), name
        assert max(texts) <= bounds[name][1], name
    assert bounds["instant"][0].startswith("1969-12-31T23:59:59.999")
    # Nothing is said of what delta-rs gets wrong.
    assert not set(bounds) & {"unsigned", "money", "widest", "finest", "nan", "only_nan", "infinite", "bytes", "record", "list"}


def test_bounds_that_we_read_bound_the_data(written: str) -> None:
    (file,) = data_files(DeltaTable(written))
    assert {"tiny", "big", "price", "text", "odd_text", "day", "instant", "local"} <= set(file.lower) & set(file.upper)
    for name in set(file.lower) & set(file.upper):
        values = [value for value in _ROWS[name].to_pylist() if value is not None]
        assert file.lower[name] <= min(values), name
        assert max(values) <= file.upper[name], name


def test_footers_have_no_bounds_that_leave_out_nan(written: str) -> None:
    """Spark skips row groups and pages by them, and to Spark NaN is the greatest number."""
    for path in DeltaTable(written).file_uris():
        group = pq.ParquetFile(path).metadata.row_group(0)
        stated = {group.column(n).path_in_schema for n in range(group.num_columns) if group.column(n).is_stats_set}
        assert {"k", "day", "text"} <= stated
        assert not stated & {"nan", "only_nan", "infinite", "record.z.q", "list.list.element"}


_FOUND_BY = [
    (
        3,
        "unsigned = 12345678901234567891 AND money = 1234567890123456.78BD AND price = 1234567890123.45 "
        f"AND widest = {'9' * 38} AND infinite = float('Infinity') AND text = repeat('x', 100) AND big = {2**63 - 1} "
        "AND odd_text = repeat(decode(unhex('F48FBFBF'), 'UTF-8'), 40) AND day = DATE'9999-12-31' "
        "AND instant = timestamp_micros(253402300799999999)",
    ),
    (2, "nan > 10D AND nan = double('NaN') AND only_nan > 10D"),
    (1, "record.y = 12345678901234567891 AND record.z.q > 10D"),
    (1, "local = timestamp_ntz'1969-12-31 23:59:59.998999'"),
    (3, "nan = 0D AND only_nan IS NULL"),
]


def test_spark_finds_every_value_that_was_written(spark: SparkSession, written: str) -> None:
    table = spark.newSession().read.format("delta").load(written)
    found = [table.where(condition).selectExpr("k", f"{n} AS n") for n, (_, condition) in enumerate(_FOUND_BY)]
    rows = reduce(DataFrame.unionAll, found).collect()
    assert {row.n: row.k for row in rows} == {n: k for n, (k, _) in enumerate(_FOUND_BY)}


def test_dates_and_times_outside_of_the_calendar(spark: SparkSession, tmp_path: Path) -> None:
    """Spark computes dates before the year 1 and after 9999; Python has none of them."""
    path = str(tmp_path / "t")
    days = pa.array([-800_000, 3_000_000], pa.int32()).cast(pa.date32())
    times = pa.array([-62_135_596_800_000_001, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    write_deltalake(path, pa.table({"k": [1, 2], "day": days, "time": times}))
    (file,) = data_files(DeltaTable(path))
    assert (file.lower["k"], file.upper["k"]) == (1, 2)
    assert "day" not in file.upper
    table = spark.read.format("delta").load(path)
    assert table.where("day > DATE'9999-12-31'").select("k").collect() == [(2,)]
    assert table.where("day < DATE'0001-01-01'").select("k").collect() == [(1,)]
    assert table.where("time > TIMESTAMP'9999-12-31 23:59:59.999999Z'").select("k").collect() == [(2,)]


def _foreign(path: Path, rows: pa.Table) -> DeltaTable:
    """A table that someone else wrote by delta-rs."""
    deltalake.write_deltalake(path, rows)
    return DeltaTable(str(path))


def test_what_others_wrote_of_long_decimals_is_not_known(tmp_path: Path) -> None:
    value = Decimal("12345678901234567891")
    (file,) = data_files(_foreign(tmp_path / "t", pa.table({"x": pa.array([value], pa.decimal128(20, 0))})))
    assert "x" not in file.upper
    assert LookupKeys("x", (value,)).may_be_in(file.lower, file.upper, "x")


def test_short_values_of_long_decimals_are_known(tmp_path: Path) -> None:
    values = [Decimal("1.00"), Decimal("20.50")]
    (file,) = data_files(_foreign(tmp_path / "t", pa.table({"x": pa.array(values, pa.decimal128(38, 2))})))
    assert (file.lower["x"], file.upper["x"]) == tuple(values)
    assert not LookupKeys("x", (Decimal(21),)).may_be_in(file.lower, file.upper, "x")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_decimal_of_others_is_outside_of_its_bounds(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    digits = st.integers(-(10**precision) + 1, 10**precision - 1) | st.integers(-999, 999).map(lambda n: n % 10**precision)
    unscaled = data.draw(st.lists(digits, min_size=1, max_size=20))
    values = [Decimal(f"{n}e-{scale}") for n in unscaled]
    path = tmp_path_factory.mktemp("decimals") / "t"
    (file,) = data_files(_foreign(path, pa.table({"x": pa.array(values, pa.decimal128(precision, scale))})))
    assert file.lower.get("x", min(values)) <= min(values)
    assert file.upper.get("x", max(values)) >= max(values)


def test_columns_with_dots_are_not_fields_of_structs(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([{"b": 1}], pa.struct([("b", pa.int64())])), "a.b": [5]})
    (file,) = data_files(_foreign(tmp_path / "t", rows))
    assert (file.lower["a.b"], file.upper["a.b"]) == (5, 5)
    assert "a" not in file.lower


def test_a_created_table_takes_the_same_commits(spark: SparkSession, tmp_path: Path) -> None:
    path, schema = str(tmp_path / "t"), spark.createDataFrame([], "k BIGINT, x DECIMAL(20,0), f DOUBLE").schema
    create_plain_table(path, schema, {})
    write_deltalake(
        DeltaTable(path), pa.table({"k": [1], "x": pa.array([2], pa.decimal128(20, 0)), "f": [_NAN]}), mode="append"
    )
    assert spark.read.format("delta").load(path).where("f > 1D AND x = 2").count() == 1
