"""Kinds of aggregate calls: choice, names in stored plans, documentation. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy
from relstate_dagster.jobs.plan.aggregates.registry import KINDS, choose_kind, kinds_of, with_kinds, with_rows_of_groups
from relstate_dagster.jobs.plan.aggregates.sums import sum_type
from relstate_dagster.jobs.plan.nodes import AggCall, Aggregate, Field, Materialize, OutputColumn, Scan, UnionAll, walk
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.jobs.plan.stateful_plan import StatefulPlan
from relstate_dagster.state_lib.errors import PlanError

_PAGE = Path(__file__).parents[2] / "docs" / "operators" / "aggregate.md"
_CALL = AggCall("max", ("v",), False, "max(`v`)", Field("m", "int"), ("int",))
_ROWS = Scan("t", (Field("k", "int"), Field("v", "int")), ("k",), False)


@pytest.mark.parametrize(
    ("function", "data_type", "distinct", "append_only", "strategy"),
    [
        ("sum", "int", False, False, CallStrategy.VALUE),
        ("sum", "decimal(38,10)", False, False, CallStrategy.VALUE),
        ("sum", "double", False, False, CallStrategy.VALUE),
        ("avg", "float", True, False, CallStrategy.DISTINCT),
        ("stddev", "double", False, False, CallStrategy.MATERIALIZED_INPUT),
        ("avg", "bigint", False, True, CallStrategy.VALUE),
        ("count", "string", False, False, CallStrategy.VALUE),
        ("count", "string", True, False, CallStrategy.DISTINCT),
        ("min", "string", False, False, CallStrategy.EXTREME),
        ("min", "string", False, True, CallStrategy.VALUE),
        ("percentile", "int", False, False, CallStrategy.MATERIALIZED_INPUT),
    ],
)
def test_the_strategy_of_a_call(
    function: str, data_type: str, distinct: bool, append_only: bool, strategy: CallStrategy
) -> None:
    call = AggCall(function, ("x",), distinct, "", Field("y", "int"), (data_type,))
    assert choose_kind(call, append_only=append_only).strategy is strategy


def test_running_sums_are_wider_than_their_result() -> None:
    assert sum_type("int") == "bigint"
    assert sum_type("bigint") == "decimal(38,0)"
    assert sum_type("decimal(12,2)") == "decimal(38,2)"


def _as_stored(node: Aggregate, **changed: Any) -> dict[str, Any]:
    """A plan with that aggregate; its calls are changed."""
    outputs = tuple(OutputColumn(name, name) for name in node.column_names)
    stored = StatefulPlan.allocate(Materialize(node, outputs), 1).to_dict()
    (own,) = (entry["plan"] for entry in stored["nodes"] if entry["plan"]["node"] == "Aggregate")
    own["calls"] = [{**call, **changed} for call in own["calls"]]
    return stored


def test_a_stored_plan_says_how_each_call_is_kept() -> None:
    """Its input does not decide again."""
    node = with_kinds(Aggregate(_ROWS, ("k",), (_CALL,)))
    assert [kind.name for kind in kinds_of(node)] == ["greatest"]
    plan = StatefulPlan.from_dict(_as_stored(node, kind="append-only max"))
    (other,) = (found for found in walk(plan.root) if isinstance(found, Aggregate))
    assert [table.label for table in infer_state_tables(node)] == ["max(v)", "values of max(v)"]
    assert [table.label for table in infer_state_tables(other)] == ["max(v)"]


@pytest.mark.parametrize("kind", ["median of medians", ""])
def test_a_kind_that_is_not_known_is_refused(kind: str) -> None:
    calls = (_CALL, replace(_CALL, function="min", sql="min(`v`)", output=Field("l", "int")))
    stored = _as_stored(with_kinds(Aggregate(_ROWS, ("k",), calls)))
    (own,) = (entry["plan"] for entry in stored["nodes"] if entry["plan"]["node"] == "Aggregate")
    own["calls"][1]["kind"] = kind
    with pytest.raises(PlanError, match=rf"the call min\(v\) of a plan is of the unknown aggregate kind '{kind}'; upgrade"):
        StatefulPlan.from_dict(stored)


def test_an_aggregate_without_kinds_has_no_state_tables() -> None:
    with pytest.raises(PlanError, match="unknown aggregate kind"):
        infer_state_tables(Aggregate(_ROWS, ("k",), (_CALL,)))


@pytest.mark.parametrize(("other", "kept"), [("min", ["exact sum", "least"]), ("stddev", ["materialized", "materialized"])])
def test_sums_are_taken_from_rows_that_another_call_needs(other: str, kept: list[str]) -> None:
    calls = (AggCall(f, ("x",), False, f"{f}(`x`)", Field(f, "double"), ("double",)) for f in ("sum", other))
    rows = Scan("t", (Field("k", "int"), Field("x", "double")), ("k",), False)
    assert [kind.name for kind in kinds_of(with_kinds(Aggregate(rows, ("k",), tuple(calls))))] == kept


def test_rows_of_groups_are_kept_wherever_sums_would_spare_them() -> None:
    """In each branch of a union, and below other aggregates; calls of other kinds stay as they are."""
    rows = Scan("t", (Field("k", "int"), Field("x", "double")), ("k",), False)
    calls = tuple(AggCall(f, ("x",), False, f"{f}(`x`)", Field(f, "double"), ("double",)) for f in ("sum", "avg", "min"))
    grouped = with_kinds(Aggregate(rows, ("k",), calls))
    above = with_kinds(Aggregate(grouped, (), (replace(calls[0], arguments=("sum",), sql="sum(`sum`)"),)))
    for root, number in ((UnionAll((grouped, grouped), None), 1), (above, 2)):
        before = [node for node in walk(root) if isinstance(node, Aggregate)]
        kept = [node for node in walk(with_rows_of_groups(root)) if isinstance(node, Aggregate)]
        assert len(before) == len(kept) == number
        assert {call.kind for node in kept for call in node.calls} == {"materialized", "least"}
        assert {kind.name for node in before for kind in kinds_of(node)} == {"exact sum", "exact avg", "least"}


def test_names_of_kinds_differ() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_documentation_describes_every_kind(kind: Any) -> None:
    assert f"| {' | '.join(kind.description)} |" in _PAGE.read_text(encoding="utf-8")
