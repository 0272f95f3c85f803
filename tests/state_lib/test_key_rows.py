"""Which files a lookup opens: those of its keys' vnodes, whose range may have one. No Spark."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import table

from relstate_dagster.state_lib.constants import ROW_ID, TABLE_ID, VNODE
from relstate_dagster.state_lib.key_rows import KeyRows
from relstate_dagster.state_lib.lake.statistics import DataFile
from relstate_dagster.state_lib.slots import assign_slots
from relstate_dagster.state_lib.table_schema import StateTableDesc
from relstate_dagster.state_lib.vnode import row_vnode
from tests.serials import Serial
from tests.sizes import Resized

#: Three columns that tables are distributed by, with what Arrow has of them.
_BY_TWO = table(1, "a bigint; b string; c decimal(9,2)", ["a", "b"], vnode_count=64)
_BY_TWO = replace(_BY_TWO, schema=replace(_BY_TWO.schema, distribution_key=("a", "b")))


def _files(desc: StateTableDesc, **bounds: tuple[Any, Any]) -> list[DataFile]:
    lower, upper = ({name: pair[n] for name, pair in bounds.items()} for n in (0, 1))
    return [
        DataFile(f"f{vnode}", 1, 1, {TABLE_ID: desc.table_id, VNODE: vnode}, lower, upper) for vnode in range(desc.vnode_count)
    ]


def _opened(desc: StateTableDesc, keys: KeyRows | None, **bounds: tuple[Any, Any]) -> set[int]:
    assert keys is not None
    (slots,) = assign_slots([desc.schema]).tables
    return {file.partition[VNODE] for file in keys.files(desc, slots, _files(desc, **bounds))}


def _keys(columns: dict[str, Any], *matching_nulls: str) -> KeyRows | None:
    return KeyRows.of(pa.table(columns), [(name, name) for name in columns], matching_nulls)


_VALUES = st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text())


@given(st.lists(_VALUES, min_size=1, max_size=20), st.booleans())
def test_the_vnodes_of_all_keys_and_no_others(rows: list[tuple[int | None, str | None]], nulls_match: bool) -> None:
    columns = {"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.string())}
    opened = _opened(_BY_TWO, _keys(columns, *(["a", "b"] if nulls_match else [])))
    found = [row for row in rows if nulls_match or None not in row]
    assert opened == {row_vnode(_BY_TWO.schema, 64, {"a": a, "b": b}) for a, b in found}


def test_a_table_that_has_grown_is_looked_up_where_each_count_put_its_rows() -> None:
    grown = replace(_BY_TWO, first_vnode_count=1)
    opened = _opened(grown, _keys({"a": pa.array([7]), "b": pa.array(["x"])}))
    assert opened == {row_vnode(grown.schema, 1 << n, {"a": 7, "b": "x"}) for n in range(7)}
    assert 0 in opened


def test_files_whose_range_has_no_key_are_left_out() -> None:
    keys = _keys({"a": pa.array([7, 8]), "b": pa.array(["x", "y"])})
    assert len(_opened(_BY_TWO, keys, bigint_1=(0, 100))) == 2
    assert _opened(_BY_TWO, keys, bigint_1=(8, 100)) == {row_vnode(_BY_TWO.schema, 64, {"a": 8, "b": "y"})}
    assert _opened(_BY_TWO, keys, bigint_1=(0, 100), string_1=("yy", "z")) == set()


def test_more_keys_than_the_driver_looks_at_open_all(resized: Resized) -> None:
    resized(vnode_keys=10)
    assert len(_opened(_BY_TWO, _keys({"a": pa.array(range(10)), "b": pa.array(["x"] * 10)}))) < 11
    assert len(_opened(_BY_TWO, _keys({"a": pa.array(range(11)), "b": pa.array(["x"] * 11)}))) == 64
    # The same key again and again is one.
    assert len(_opened(_BY_TWO, _keys({"a": pa.array([1] * 1000), "b": pa.array(["x"] * 1000)}))) == 1


@pytest.mark.parametrize("columns", [{"a": pa.array([1])}, {"c": pa.array([Decimal("1.00")])}])
def test_keys_that_do_not_fix_the_distribution_key_open_all(columns: dict[str, Any]) -> None:
    assert len(_opened(_BY_TWO, _keys(columns))) == 64


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("decimal(9,2)", pa.array([Decimal("1.5")])),
        ("decimal(9,2)", pa.array([1])),
        ("double", pa.array([-0.0, 0.0, math.nan])),
        ("boolean", pa.array([True])),
        ("date", pa.array([dt.date(2026, 1, 1)])),
        ("timestamp", pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)], pa.timestamp("us", "Europe/Oslo"))),
        ("binary", pa.array([b"\0\xff"])),
    ],
)
def test_values_of_each_type(ddl: str, values: pa.Array) -> None:
    desc = table(1, f"a {ddl}", ["a"], vnode_count=64)
    expected = {row_vnode(desc.schema, 64, {"a": value}) for value in values.to_pylist()}
    assert _opened(desc, _keys({"a": values})) == expected
    if ddl == "double":
        assert len(expected) == 2, "0.0 and -0.0 are one"


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("int", pa.array([2**40])),
        ("decimal(3,2)", pa.array([Decimal("1.234")])),
        # No date of Python's.
        ("date", pa.array([2**30], pa.int32()).cast(pa.date32())),
    ],
)
def test_values_that_the_driver_cannot_place_open_all(ddl: str, values: pa.Array) -> None:
    assert len(_opened(table(1, f"a {ddl}", ["a"], vnode_count=64), _keys({"a": values}))) == 64


def test_nested_values_are_not_looked_at() -> None:
    assert _keys({"a": pa.array([[1]])}) is None


def test_a_row_id_carries_its_vnode() -> None:
    desc = table(1, f"{ROW_ID} bigint", [ROW_ID], vnode_count=64)
    ids = [int(Serial(5, vnode, 3)) for vnode in (1, 65, 1023)]
    assert _opened(desc, _keys({ROW_ID: pa.array(ids)})) == {1, 63}


def test_another_name_for_a_column() -> None:
    keys = _keys({"x": pa.array([7]), "y": pa.array([None], pa.string())}, "y")
    assert keys is not None
    renamed = keys.renamed({"x": "a", "y": "b"}.__getitem__)
    assert _opened(_BY_TWO, renamed) == {row_vnode(_BY_TWO.schema, 64, {"a": 7, "b": None})}
