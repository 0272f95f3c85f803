"""How nodes are distributed, and where exchanges are: from plans alone, without Spark."""

from __future__ import annotations

import pytest

from relstate_dagster.jobs.plan.aggregates.registry import with_kinds
from relstate_dagster.jobs.plan.distribution import ANY, SINGLE, Distribution, distribution, exchanges
from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.jobs.plan.nodes import (
    AggCall,
    Aggregate,
    Field,
    Filter,
    Join,
    JoinKey,
    Materialize,
    NamedExpr,
    OutputColumn,
    PlanNode,
    Project,
    Scan,
    SortKey,
    TopN,
    UnionAll,
    Window,
)
from relstate_dagster.state_lib.constants import ROW_ID

_ID = Field(ROW_ID, "bigint", False)
CLICKS = Scan("clicks", (Field("page", "string"), Field("n", "int"), _ID), (ROW_ID,), True)
T = Scan("t", (Field("k", "int", False), Field("g", "int"), Field("a b", "string")), ("k",), False)
U = Scan("u", (Field("uk", "int", False), Field("ug", "int")), ("uk",), False)


def _kept(child: PlanNode, **names: str) -> Project:
    """A projection to some columns, each under a new name."""
    fields = {f.name: f for f in child.schema}
    return Project(child, tuple(NamedExpr(f"`{old}`", Field(new, fields[old].data_type)) for new, old in names.items()))


def _view(child: PlanNode) -> Materialize:
    return Materialize(child, tuple(OutputColumn(name, name) for name in child.column_names))


def _sum(child: PlanNode, *group: str) -> Aggregate:
    return with_kinds(Aggregate(child, group, (AggCall("sum", ("g",), False, "sum(g)", Field("s", "bigint"), ("int",)),)))


def test_a_keyless_append_only_source_is_written_without_an_exchange() -> None:
    view = _view(_kept(Filter(CLICKS, "n > 3"), page="page", **{ROW_ID: ROW_ID}))
    assert distribution(view) == Distribution((ROW_ID,))
    assert "Exchange" not in explain_plan(view)
    assert explain_plan(view).count("distribution vnode of _row_id") == 5  # four nodes and a table


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (T, ANY),
        (CLICKS, Distribution((ROW_ID,))),
        (_kept(CLICKS, page="page"), ANY),
        (_kept(_sum(T, "g", "a b"), x="a b", y="g", s="s"), Distribution(("y", "x"))),
        (_kept(_sum(T, "g"), s="s"), ANY),
        (_sum(T), SINGLE),
        (_kept(_sum(T), s="s"), SINGLE),
        (TopN(T, (SortKey("g"),), 3, 0), SINGLE),
        (Window(T, ("g",), (), (NamedExpr("count(1) OVER ()", Field("c", "bigint")),)), Distribution(("g",))),
        (Window(T, (), (), (NamedExpr("count(1) OVER ()", Field("c", "bigint")),)), SINGLE),
        (UnionAll((_sum(T, "g"), Filter(_sum(T, "g"), "s > 1")), None), Distribution(("g",))),
        (UnionAll((T, Filter(T, "g > 1")), None), ANY),
        (Join(T, U, "inner", (JoinKey("g", "ug"),)), Distribution(("g",))),
        (Join(T, U, "left outer", (JoinKey("g", "ug"),)), Distribution(("g",))),
        (Join(T, U, "right outer", (JoinKey("g", "ug"),)), Distribution(("ug",))),
        (Join(T, U, "full outer", (JoinKey("g", "ug"),)), ANY),
        (Join(T, U, "left anti", (JoinKey("g", "ug"),)), Distribution(("g",))),
        (Join(T, U, "inner", (JoinKey("g", "ug"),), right_in_place=True), ANY),
        (Join(T, U, "inner", ()), SINGLE),
    ],
)
def test_each_node_says_how_it_is_distributed(node: PlanNode, expected: Distribution) -> None:
    assert distribution(node) == expected


def test_exchanges_are_where_the_distribution_changes() -> None:
    by_g, again = _sum(T, "g"), Aggregate(_kept(_sum(T, "g"), g2="g", s="s"), ("g2",), ())
    assert exchanges(by_g) == (Distribution(("g",)),)
    # Grouped by what it is grouped by already, under another name.
    assert exchanges(again) == (None,)
    assert exchanges(_view(by_g)) == (None,)
    # The same columns in another order have another hash.
    assert exchanges(Aggregate(_sum(T, "g", "a b"), ("a b", "g"), ())) == (Distribution(("a b", "g")),)
    join = Join(by_g, U, "left outer", (JoinKey("g", "ug"),), right_in_place=True)
    assert exchanges(join) == (None, None), "a side in place has no rows of its own"
    assert exchanges(Join(by_g, U, "left outer", (JoinKey("g", "ug"),))) == (None, Distribution(("ug",)))
    assert exchanges(_view(Join(T, U, "inner", ()))) == (Distribution(("k", "uk")),)
    assert exchanges(Filter(T, "true")) == (None,)


def test_explain_names_exchanges_once_each() -> None:
    lines = explain_plan(_view(_sum(T, "g"))).splitlines()
    assert [line.strip() for line in lines if "Exchange" in line] == ["Exchange hash (g)"]
    assert lines[1].startswith("  Aggregate")
    assert lines[2] == "    Exchange hash (g)"
    assert lines[3].startswith("      Scan t")
    assert "distribution hash (g), newest epoch wins" in lines[6]
