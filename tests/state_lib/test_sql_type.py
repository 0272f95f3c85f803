"""Facts about types, out of their parsed text."""

from __future__ import annotations

import pytest

from relstate_dagster.jobs.plan.nodes import Field, Scan, SortKey, TopN
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.sql_type import sql_type


def _true(ddl: str) -> set[str]:
    found = sql_type(ddl)
    names = ("is_nested", "is_exact", "has_floats", "has_maps", "has_variants", "has_collations")
    return {name for name in names if getattr(found, name)}


@pytest.mark.parametrize(
    ("ddl", "name", "facts"),
    [
        ("int", "int", {"is_exact"}),
        ("BIGINT", "bigint", {"is_exact"}),
        ("decimal(15, 2)", "decimal", {"is_exact"}),
        ("double", "double", {"has_floats"}),
        ("STRING", "string", set()),
        ("STRING COLLATE UTF8_LCASE", "string", {"has_collations"}),
        ("char(3)", "char", set()),
        ("timestamp_ntz", "timestamp_ntz", set()),
        ("variant", "variant", {"has_variants"}),
        ("array<float>", "array", {"is_nested", "has_floats"}),
        ("map<string,array<int>>", "map", {"is_nested", "has_maps"}),
        ("struct<`a`: map<int, double>>", "struct", {"is_nested", "has_maps", "has_floats"}),
        ("struct<`doubled`: int, `collated`: string, `variants`: int, `map<`: int>", "struct", {"is_nested"}),
        ("interval", "interval", set()),
        ("time(6)", "time", set()),
    ],
)
def test_facts_of_a_type(ddl: str, name: str, facts: set[str]) -> None:
    assert (sql_type(ddl).name, _true(ddl), sql_type(ddl).ddl) == (name, facts, ddl)


def test_numbers_and_intervals() -> None:
    assert [sql_type(ddl).bits for ddl in ("tinyint", "smallint", "int", "bigint", "double")] == [8, 16, 32, 64, None]
    assert [sql_type(ddl).decimal for ddl in ("decimal(15, 2)", "decimal(10,0)", "int")] == [(15, 2), (10, 0), None]
    units = [sql_type(ddl).interval_unit for ddl in ("interval year to month", "interval month", "interval hour", "interval")]
    assert units == ["'1' MONTH", "'1' MONTH", "'0.000001' SECOND", None]


def test_what_is_no_type_and_has_a_map() -> None:
    with pytest.raises(PlanError, match="not a Spark type"):
        sql_type("struct<a: interval, b: map<int, int>>")


def test_names_of_fields_do_not_matter() -> None:
    """A top-n orders its input by a struct with fields of any name."""
    for field in ("a", "collated", "variants"):
        rows = Scan("t", (Field("k", "int", False), Field("s", f"struct<`{field}`: int>")), ("k",), False)
        whole, _ = infer_state_tables(TopN(rows, (SortKey("s"),), 3, 0, keeps_first=True))
        assert [part.column for part in whole.storage_key] == ["s", "k"]
