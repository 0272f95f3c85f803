"""What nodes derive of themselves, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relstate_dagster.jobs.plan.aggregates.registry import with_kinds
from relstate_dagster.jobs.plan.nodes import (
    AggCall,
    Aggregate,
    Field,
    Join,
    JoinKey,
    Materialize,
    NamedExpr,
    OutputColumn,
    PlanNode,
    Project,
    Scan,
    walk,
)
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.table_schema import StateKind


def scan(name: str, *columns: str, key: tuple[str, ...] | None = None, append_only: bool = False) -> Scan:
    return Scan(name, tuple(Field(c, "int") for c in columns), key, append_only)


def column(name: str, to: str | None = None) -> NamedExpr:
    return NamedExpr(f"`{name}`", Field(to or name, "int"))


def test_a_projection_keeps_the_key_under_its_new_name() -> None:
    t = scan("t", "k", "v", key=("k",))
    assert Project(t, (column("k", "id"), column("v"))).stream_key == ("id",)
    assert Project(t, (column("v"),)).stream_key is None
    assert Project(t, (NamedExpr("`k` + 1", Field("k", "int")),)).stream_key is None


def test_a_side_that_matches_at_most_once_adds_nothing_to_the_key() -> None:
    t, d = scan("t", "k", "g", key=("k",)), scan("d", "id", "x", key=("id",))
    assert Join(t, d, "inner", (JoinKey("g", "id"),)).stream_key == ("k",)
    assert Join(t, d, "left outer", (JoinKey("g", "id"),)).stream_key == ("k",)
    assert Join(t, d, "inner", (JoinKey("g", "x"),)).stream_key == ("k", "id")
    assert Join(t, d, "full outer", (JoinKey("g", "id"),)).stream_key == ("k", "id")
    assert Join(t, scan("m", "g2"), "inner", (JoinKey("g", "g2"),)).stream_key is None
    assert Join(t, scan("m", "g2"), "left semi", (JoinKey("g", "g2"),)).stream_key == ("k",)


def test_only_inner_and_semi_joins_of_append_only_sides_are_append_only() -> None:
    a, b = scan("a", "x", append_only=True), scan("b", "y", append_only=True)
    key = (JoinKey("x", "y"),)
    assert Join(a, b, "inner", key).append_only
    assert Join(a, b, "left semi", key).append_only
    assert not Join(a, b, "left outer", key).append_only
    assert not Join(a, b, "left anti", key).append_only


def test_the_three_forms_of_join_state() -> None:
    t, d, m = scan("t", "k", "g", key=("k",)), scan("d", "id", key=("id",)), scan("m", "g2")
    left, right = infer_state_tables(Join(t, d, "inner", (JoinKey("g", "id"),)))
    assert (left.kind, right.kind) == (StateKind.INPUT_SIDE_HAS_UNIQUE_KEY, StateKind.JOIN_KEY_CONTAINS_UNIQUE_KEY)
    _, right = infer_state_tables(Join(t, m, "inner", (JoinKey("g", "g2"),)))
    assert right.kind is StateKind.INPUT_SIDE_HAS_NO_UNIQUE_KEY


def test_two_tables_a_join_and_one_for_all_calls_of_an_aggregate() -> None:
    t = scan("t", "k", "g", "v", key=("k",))
    calls = (
        AggCall("sum", ("v",), False, "sum(`v`)", Field("s", "bigint"), ("int",)),
        AggCall("count", (), False, "count(1)", Field("n", "bigint")),
        AggCall("max", ("v",), False, "max(`v`)", Field("m", "int"), ("int",)),
    )
    node = with_kinds(Aggregate(t, ("g",), calls))
    groups, extreme = infer_state_tables(node)
    assert (groups.label, extreme.label) == ("sum(v), count(*), max(v)", "values of max(v)")
    names = ["g", "_sum", "_count_0", "_count_1", "_first", "_complete", "_group_rows"]
    assert [c.name for c in groups.columns] == names
    assert [s.storage_key[0].column for s in (groups, extreme)] == ["g", "g"]
    earlier = infer_state_tables(replace(node, shares_value_state=False))
    assert [s.label for s in earlier] == ["sum(v)", "count(*)", "max(v)", "values of max(v)"]
    assert [(p.column, p.descending) for p in extreme.storage_key] == [("g", False), ("_value_0", True)]
    assert len(infer_state_tables(Join(t, scan("d", "id"), "inner", (JoinKey("g", "id"),)))) == 2


def test_equal_nodes_are_walked_once() -> None:
    t = scan("t", "k", "v", key=("k",))
    once = Project(t, (column("k"),))
    again = Project(scan("t", "k", "v", key=("k",)), (column("k"),))
    renamed = Project(again, (column("k", "k_2"),))
    root: PlanNode = Join(once, renamed, "inner", (JoinKey("k", "k_2"),))
    root = Materialize(root, (OutputColumn("k", "k"),))
    assert [type(n).__name__ for n in walk(root)] == ["Scan", "Project", "Project", "Join", "Materialize"]


def test_a_wrong_node_cannot_be_built() -> None:
    t = scan("t", "k", key=("k",))
    with pytest.raises(PlanError, match="duplicate column names"):
        Project(t, (column("k"), column("k")))
    with pytest.raises(PlanError, match="join type sideways"):
        Join(t, t, "sideways", ())
    with pytest.raises(PlanError, match="has no column v"):
        Aggregate(t, ("v",), ())
