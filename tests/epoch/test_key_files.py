"""Primary keys of a whole table, checked by the driver in the order of a key column."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relstate_dagster.jobs.sources.key_files import KeyProblem
from relstate_dagster.jobs.sources.whole_keys import KeysInOrder, keys_in_order
from relstate_dagster.state_lib.lake.statistics import DataFile
from tests.sizes import Resized

Keys = Sequence[tuple[int | None, int]]

_TIMES = pa.timestamp("us", "UTC")


def _order(folder: Path, contents: Sequence[Keys], *, o: Any = int, o_type: pa.DataType | None = None) -> KeysInOrder | None:
    """Files of the keys (o, l), two rows in a row group; ``o`` makes the first of a whole number."""
    files = []
    for n, keys in enumerate(contents):
        orders = pa.array([None if row[0] is None else o(row[0]) for row in keys], o_type or pa.int64())
        rows = pa.table({"o": orders, "l": pa.array([row[1] for row in keys], pa.int64())})
        pq.write_table(rows, folder / f"{n}.parquet", row_group_size=2)
        files.append(DataFile(f"{n}.parquet", 1, len(keys), {}, {}, {}))
    return keys_in_order(str(folder), files, ("o", "l"))


def _problem(order: KeysInOrder | None) -> KeyProblem | None:
    assert order is not None
    return order.problem()


@pytest.fixture(params=[1, 5, 1000], ids="{} rows at once".format)
def at_once(request: pytest.FixtureRequest, resized: Resized) -> None:
    resized(keys_read_at_once=request.param)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        # The lines of an order in two files, and in three.
        ([[(1, 1), (2, 1)], [(2, 2), (3, 1)], [(4, 1)]], None),
        ([[(1, 1), (2, 1)], [(2, 2)], [(2, 3), (3, 1)]], None),
        ([[(1, 1), (2, 1)], [(2, 2)], [(2, 1), (3, 1)]], "2 rows have o = 2, l = 1"),
        ([[(2, 1), (3, 1)], [(1, 1), (2, 1)]], "2 rows have o = 2, l = 1"),
        ([[(1, 1), (9, 1)], [(3, 1), (4, 1)], [(4, 1), (10, 2)]], "2 rows have o = 4, l = 1"),
        ([[(1, 1), (1, 1)], [(5, 1)]], "2 rows have o = 1, l = 1"),
        ([[(5, 1)], [(1, 3)], [(1, 2), (4, 2), (5, 1), (6, 1), (5, 1)]], "3 rows have o = 5, l = 1"),
        ([[(1, 1), (2, 2)], [(3, 1), (None, 4)]], "a row has a NULL in it (o = NULL, l = 4)"),
        ([[(None, 4)], [(3, 1)]], "a row has a NULL in it (o = NULL, l = 4)"),
        ([[(1, 1)], []], None),
        ([], None),
    ],
)
def test_keys_across_files(tmp_path: Path, contents: Sequence[Keys], problem: str | None) -> None:
    found = _problem(_order(tmp_path, contents))
    assert (None if found is None else str(found).split(";")[0]) == problem


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", range(10))
def test_any_files(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    spread = chance.choice([3, 10, 40])
    contents = [
        [(chance.randint(start, start + spread), chance.randint(1, 9)) for _ in range(chance.randint(1, 9))]
        for start in chance.choices(range(40), k=6)
    ]
    counts = Counter(key for keys in contents for key in keys)
    found = _problem(_order(tmp_path, contents))
    if found is None:
        assert max(counts.values()) == 1
    else:
        assert counts[found.values["o"], found.values["l"]] == found.rows > 1


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("make", "data_type"),
    [
        (lambda n: f"k{n}", pa.string()),
        (lambda n: f"k{n}" * 40, pa.large_string()),
        (lambda n: bytes([n]), pa.binary()),
        (lambda n: date(2026, 1, 1) + timedelta(n), pa.date32()),
        (lambda n: datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(n), _TIMES),
        (lambda n: datetime(2026, 1, 1) + timedelta(n), pa.timestamp("us")),
        (lambda n: Decimal(n).scaleb(-2), pa.decimal128(12, 2)),
        (lambda n: n > 5, pa.bool_()),
    ],
)
def test_keys_of_any_type(tmp_path: Path, make: Any, data_type: pa.DataType) -> None:
    once = [[(1, 1), (3, 2), (5, 3)], [(2, 4), (7, 5)]]
    assert _problem(_order(tmp_path, once, o=make, o_type=data_type)) is None
    found = _problem(_order(tmp_path, [*once, [(9, 6), (3, 2)]], o=make, o_type=data_type))
    assert found is not None
    assert (found.values, found.rows) == ({"o": make(3), "l": 2}, 2)


def test_times_as_spark_writes_them_have_no_statistics_and_are_held(tmp_path: Path) -> None:
    day = pa.array([datetime(2026, 1, n, tzinfo=timezone.utc) for n in (1, 2, 3, 2)], _TIMES)
    pq.write_table(pa.table({"d": day}), tmp_path / "0.parquet", use_deprecated_int96_timestamps=True, row_group_size=1)
    order = keys_in_order(str(tmp_path), [DataFile("0.parquet", 1, 4, {}, {}, {})], ("d",))
    found = _problem(order)
    assert order is not None
    assert order.most_rows == 4
    assert found is not None
    assert found.rows == 2


def test_spark_compares_floating_point_numbers(tmp_path: Path) -> None:
    assert _order(tmp_path, [[(1, 1)]], o=float, o_type=pa.float64()) is None


def test_what_is_held_are_the_row_groups_that_overlap(tmp_path: Path) -> None:
    in_order = _order(tmp_path, [[(n, 1) for n in range(k, k + 8)] for k in (0, 8, 16)])
    assert in_order is not None
    assert (in_order.column, in_order.most_rows) == ("o", 2)


def test_the_order_is_that_of_the_column_by_which_least_overlap(tmp_path: Path) -> None:
    by_second = _order(tmp_path, [[(n % 3, n) for n in range(k, k + 8)] for k in (0, 8, 16)])
    assert by_second is not None
    assert (by_second.column, by_second.most_rows) == ("l", 2)
    assert by_second.problem() is None


@pytest.mark.parametrize(
    ("types", "rows"),
    [
        ((pa.int32(), pa.int64()), 2),
        # The same numbers are other times.
        ((pa.timestamp("ms", "UTC"), _TIMES), None),
    ],
)
def test_writers_that_store_a_type_differently(tmp_path: Path, types: Sequence[pa.DataType], rows: int | None) -> None:
    files = []
    for n, data_type in enumerate(types):
        values = pa.array([1 + n, 2 + n, 3 + n], pa.int64()).cast(data_type)
        pq.write_table(pa.table({"d": values}), tmp_path / f"{n}.parquet")
        files.append(DataFile(f"{n}.parquet", 1, 3, {}, {}, {}))
    found = _problem(keys_in_order(str(tmp_path), files, ("d",)))
    assert (None if found is None else found.rows) == rows
