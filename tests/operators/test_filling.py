"""Filling a part of a plan while the rest goes on, against the query."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Aggregate, Arrange, Field, Join, Materialize, PlanNode, TopN, Window, walk
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.state_lib.errors import StateError
from tests.operators.histories import drawn_history, epochs_of, seeds_of
from tests.operators.lab import Lab, Row, decimal
from tests.operators.test_differential import QUERIES
from tests.sizes import Resized

Changes = Mapping[str, list[tuple[Row, int]]]
Pick = Callable[[PlanNode], bool]

_SUMS = "SELECT g, sum(v) AS total, max(v) AS top, count(DISTINCT s) AS n FROM t GROUP BY g"
_JOINED = f"SELECT r.k, r.w, a.total, a.top, a.n FROM r LEFT JOIN ({_SUMS}) AS a ON r.g = a.g"
_LOOKED_UP = "SELECT r.k, a.n FROM r JOIN (SELECT g, count(*) AS n FROM t GROUP BY g) AS a ON r.g = a.g"
_TWICE = (
    "SELECT a.g, a.n, b.lists FROM (SELECT g, count(*) AS n FROM t GROUP BY g) AS a "
    "JOIN (SELECT g, size(collect_list(s)) AS lists FROM t GROUP BY g) AS b ON a.n = b.lists"
)
_WINDOW = f"SELECT g, total, row_number() OVER (ORDER BY total, g) AS place FROM ({_SUMS})"
_FIRST = f"SELECT g, total FROM ({_SUMS}) ORDER BY total DESC, g LIMIT 2"
_ONE_ROW = "SELECT k, w FROM r WHERE w > (SELECT avg(w) FROM r)"
_SEMI = "SELECT k, g FROM t WHERE g IN (SELECT g FROM (SELECT g, sum(w) AS w FROM r GROUP BY g) WHERE w > 3)"
_OF_IDS = "SELECT g, count(*) AS n FROM e GROUP BY g"


def _is(*kinds: type[PlanNode]) -> Pick:
    return lambda node: isinstance(node, kinds)


def _keeps_state(node: PlanNode) -> bool:
    return bool(infer_state_tables(node)) and not isinstance(node, Materialize)


#: Queries, and which of their nodes lose their state.
_CASES: dict[str, tuple[str, Pick]] = {
    "an aggregate below a join": (_JOINED, _is(Aggregate)),
    "a join above an aggregate": (_JOINED, _is(Join)),
    "all but the view": (_JOINED, _keeps_state),
    "an aggregate looked up in place": (_LOOKED_UP, _is(Aggregate)),
    "one of two over a source": (_TWICE, lambda node: isinstance(node, Aggregate) and node.calls[0].function == "count"),
    "the recomputed one of two": (_TWICE, lambda node: isinstance(node, Aggregate) and node.calls[0].function != "count"),
    "the join of two": (_TWICE, _is(Join)),
    "an aggregate below a window": (_WINDOW, _is(Aggregate)),
    "a window": (_WINDOW, _is(Window)),
    "an aggregate below a top-n": (_FIRST, _is(Aggregate)),
    "a top-n": (_FIRST, _is(TopN)),
    "a global aggregate": (_ONE_ROW, _is(Aggregate)),
    "a semi join": (_SEMI, _is(Join)),
    "below a semi join": (_SEMI, _is(Aggregate)),
    "of rows with ids that it does not keep": (_OF_IDS, _is(Aggregate)),
}


def _t(k: int, g: int | None, s: str | None, v: int | None) -> Row:
    return (k, g, s, decimal(v))


_STEPS: list[Changes] = [
    {
        "t": [(_t(1, 1, "a", 10), 1), (_t(2, 1, "b", 20), 1), (_t(3, 2, "a", None), 1), (_t(4, None, None, 7), 1)],
        "r": [((1, 1, 5), 1), ((2, 2, 1), 1), ((3, None, 3), 1), ((4, 9, 2), 1)],
        "e": [((1, "a", 1), 1), ((2, "b", 2), 1)],
    },
    {"t": [(_t(5, 1, "a", 500), 1), (_t(6, 9, "z", 1), 1)], "e": [((1, "c", 3), 1)]},
    {
        "t": [(_t(2, 1, "b", 20), -1), (_t(4, None, None, 7), -1), (_t(4, None, None, 8), 1)],
        "r": [((6, 2, 9), 1), ((1, 1, 5), -1), ((1, 1, 7), 1)],
        "e": [((2, "d", 4), 1)],
    },
    {"t": [(_t(5, 1, "a", 500), -1), (_t(3, 2, "a", None), -1)], "r": [((2, 2, 1), -1)]},
    {"r": [((7, 1, 4), 1)], "e": [((3, "e", 5), 1)]},
]


def _nodes(lab: Lab, pick: Pick) -> list[PlanNode]:
    found = [node for node in walk(lab.plan) if pick(node)]
    assert found, "the plan has such nodes"
    return found


#: Of these, those in which Spark holds the change sets, too.
_LEFT_TO_SPARK = ("all but the view", "an aggregate looked up in place", "one of two over a source")


@pytest.mark.parametrize(("name", "is_held"), [*((name, True) for name in _CASES), *((name, False) for name in _LEFT_TO_SPARK)])
def test_a_part_is_filled_while_the_rest_goes_on(spark: SparkSession, name: str, is_held: bool) -> None:
    query, pick = _CASES[name]
    with Lab(spark, query, collect_shared=is_held) as lab:
        for step in _STEPS[:2]:
            lab.step(step)
        lab.drop_state(*_nodes(lab, pick))
        for step in _STEPS[2:]:
            lab.step(step)
            lab.check()


@pytest.mark.parametrize("name", ["an aggregate below a join", "an aggregate looked up in place", "a semi join"])
def test_a_part_is_filled_whatever_has_changed(spark: SparkSession, name: str) -> None:
    """Inputs of the new nodes, of the others, or none."""
    query, pick = _CASES[name]
    for changed in ("t", "r", ""):
        with Lab(spark, query) as lab:
            lab.step(_STEPS[0])
            lab.drop_state(*_nodes(lab, pick))
            lab.step({changed: _STEPS[2][changed]} if changed else {})
            lab.check()
            lab.step({"t": [(_t(9, 1, "q", 3), 1)], "r": [((9, 1, 5), 1)]})
            lab.check()


def test_nodes_above_get_the_changes_alone(spark: SparkSession) -> None:
    with Lab(spark, _JOINED) as lab:
        lab.step(_STEPS[0])
        before = lab.changes_of_view()
        lab.drop_state(*_nodes(lab, _is(Aggregate)))
        lab.step({"t": [(_t(9, 2, "q", 3), 1)]})
        lab.check()
        assert lab.changes_of_view() - before == 2, "the old and the new row of the one group that has changed"
        left = next(table for name, table in lab.stored().items() if name.endswith("left"))
        assert left.count() == len(_STEPS[0]["r"])


def test_what_is_filled_is_what_the_node_would_have(spark: SparkSession) -> None:
    def state(*, fills: bool) -> dict[str, list[str]]:
        with Lab(spark, _JOINED) as lab:
            lab.step(_STEPS[0])
            if fills:
                lab.drop_state(*_nodes(lab, _keeps_state))
            lab.step(_STEPS[2])
            return {name: sorted(map(repr, rows.collect())) for name, rows in lab.stored().items()}

    assert state(fills=True) == state(fills=False)


def test_new_nodes_above_nodes_that_go_on(spark: SparkSession) -> None:
    """All nodes are new but the aggregate, as in an edited view."""
    with Lab(spark, _JOINED) as lab:
        for step in _STEPS[:2]:
            lab.step(step)
        lab.drop_state(*_nodes(lab, lambda node: isinstance(node, Join | Materialize)))
        for step in _STEPS[2:]:
            lab.step(step)
            lab.check()


def test_by_time_as_well(spark: SparkSession) -> None:
    """Rows that left the input of a new node by time are retracted."""
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    events = Relation("ev", (Field("k", "int", False), Field("g", "int"), Field("until", "timestamp")), ("k",))
    query = "SELECT g, count(*) AS n FROM ev WHERE until > now() GROUP BY g"
    rows = [((k, k % 2, start + timedelta(days=k)), 1) for k in range(1, 6)]
    of_event: Changes = {"ev": [((9, 1, start + timedelta(days=9)), 1)]}
    for changes in ({}, of_event):
        with Lab(spark, query, {"ev": events}) as lab:
            lab.step({"ev": rows}, start)
            lab.check()
            lab.drop_state(*_nodes(lab, _is(Aggregate)))
            lab.step(changes, start + timedelta(days=2))
            lab.check()
            lab.step({}, start + timedelta(days=3))
            lab.check()


def test_what_is_arranged_is_arranged_again(spark: SparkSession, resized: Resized) -> None:
    resized(arranged_lookup_rows=0, arranged_one_in=1, unfiltered_rows=0)
    query = "SELECT t.k, r.k AS rk FROM t JOIN (SELECT * FROM r WHERE w > 2) AS r ON t.g = r.k"
    with Lab(spark, query) as lab:
        for step in _STEPS[:2]:
            lab.step(step)
        lab.drop_state(*_nodes(lab, _is(Arrange)))
        for step in _STEPS[2:]:
            lab.step(step)
            lab.check()


def test_rows_that_may_have_expired_are_not_filled_alone(spark: SparkSession) -> None:
    with Lab(spark, _JOINED) as lab:
        lab.step(_STEPS[0])
        lab.expire()
        lab.drop_state(*_nodes(lab, _is(Aggregate)))
        with pytest.raises(StateError, match=r"cannot be filled alone: .* \(state.ttl\); rebuild with --full-refresh"):
            lab.step(_STEPS[1])


def test_rows_kept_by_their_ids_are_not_filled_alone(spark: SparkSession) -> None:
    with Lab(spark, "SELECT e.s, a.n FROM e JOIN (SELECT g, count(*) AS n FROM t GROUP BY g) AS a ON e.g = a.g") as lab:
        lab.step(_STEPS[0])
        lab.drop_state(*_nodes(lab, _is(Join)))
        with pytest.raises(StateError, match="rows of e are kept by ids that they were given as they came in"):
            lab.step(_STEPS[1])


@pytest.mark.nightly
@pytest.mark.parametrize("name", QUERIES)
def test_any_part_of_any_plan_is_filled(spark: SparkSession, name: str) -> None:
    """Parts that are drawn, in each epoch of drawn histories."""
    for seed in seeds_of(f"filled {name}"):
        draw = random.Random(seed)
        with Lab(spark, QUERIES[name], collect_shared=draw.random() < 0.7) as lab:
            kept = [found.node for found in lab.stateful.nodes if found.tables]
            for n, changes in enumerate(epochs_of(drawn_history(seed, epochs=5))):
                if n:
                    lab.drop_state(*draw.sample(kept, draw.randint(0, len(kept))))
                try:
                    lab.step(changes)
                except StateError as error:
                    if "by ids that they were given" not in str(error):
                        raise
                    return
                lab.check()
