"""Which columns of sources a plan reads: at least those that it names."""

from __future__ import annotations

from relstate_dagster.jobs.plan.nodes import Field, Filter, NamedExpr, Project, Scan, UnionAll
from relstate_dagster.jobs.plan.used_columns import used_columns

_T = Scan("t", tuple(Field(name, "int", True) for name in ("a", "b", "c", "a b", "d")), ("a",), False)


def _project(child: Scan | Filter, *sqls: str) -> Project:
    return Project(child, tuple(NamedExpr(sql, Field(f"x{n}", "int", True)) for n, sql in enumerate(sqls)))


def test_what_projections_and_filters_name_is_used() -> None:
    assert used_columns(_project(Filter(_T, "(B > 1)"), "`a b` + 1", "concat('d', a.x)")) == {"t": {"a", "b", "a b", "d"}}
    assert used_columns(_project(_T, "c")) == {"t": {"c"}}


def test_all_are_where_nothing_is_left_out() -> None:
    everything = {"t": {"a", "b", "c", "a b", "d"}}
    assert used_columns(Filter(_T, "b > 1")) == everything
    assert used_columns(UnionAll((_T, _T), None)) == everything
    assert used_columns(UnionAll((_project(_T, "c"), _project(_T, "b")), None)) == {"t": {"b", "c"}}
