"""Aggregates keep the groups that the filtered rows beside or above them can meet; the oracle is the query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Aggregate, Arrange, Filter, Join, PlanNode, walk
from relstate_dagster.jobs.planner.planning import plan_view
from tests.operators.lab import RELATIONS, Lab, Row, decimal

_TWO = "(SELECT k, g FROM r WHERE w > 3) AS two"
_MEAN = "(SELECT avg(u.v) FROM t AS u WHERE u.g = {})"
_COUNTS = "(SELECT g, count(*) AS n FROM t GROUP BY g) AS a"


def _joined(rows: str) -> str:
    return f"SELECT a.* FROM ({rows}) AS a JOIN {_TWO} ON a.g = two.k"


#: Queries with reduced aggregates, and how many.
_REDUCED = {
    "filtered beside": (f"SELECT t.k FROM t JOIN {_TWO} ON t.g = two.k WHERE t.v < {_MEAN.format('two.k')}", 1),
    "by an equal column": (f"SELECT t.k FROM t JOIN {_TWO} ON t.g = two.k WHERE t.v <= {_MEAN.format('t.g')}", 1),
    "filtered above": (
        f"SELECT b.k FROM (SELECT k, g FROM t WHERE v >= {_MEAN.format('t.g')}) b JOIN {_TWO} ON b.g = two.k",
        1,
    ),
    "a semi join above": (f"SELECT k FROM t WHERE g IN (SELECT k FROM r WHERE w > 3) AND v >= {_MEAN.format('t.g')}", 1),
    "itself filtered": (f"SELECT two.k, a.n FROM {_TWO} JOIN {_COUNTS} ON a.g = two.k", 1),
    "left outer": (f"SELECT two.k, a.n FROM {_TWO} LEFT JOIN {_COUNTS} ON a.g = two.k", 1),
    "right outer": (f"SELECT two.k, a.n FROM {_COUNTS} RIGHT JOIN {_TWO} ON a.g = two.k AND a.n > 1", 1),
    "semi": (f"SELECT k FROM {_TWO} WHERE EXISTS (SELECT 1 FROM {_COUNTS} WHERE a.g = two.k AND a.n > two.g)", 1),
    "anti": (f"SELECT k FROM {_TWO} WHERE NOT EXISTS (SELECT 1 FROM {_COUNTS} WHERE a.g = two.k AND a.n > 1)", 1),
    "existence": (f"SELECT k FROM {_TWO} WHERE k IN (SELECT g FROM {_COUNTS} WHERE n > 1) OR two.g = 1", 1),
    "having": (f"SELECT two.k FROM {_TWO} JOIN (SELECT g FROM t GROUP BY g HAVING count(*) > 1) AS a ON a.g = two.k", 1),
    "a name twice": (
        f"SELECT a.k, a.n FROM {_TWO} JOIN (SELECT k, min(g) AS n FROM m JOIN t USING (g) GROUP BY k) a USING (k)",
        1,
    ),
    "below a join": (_joined("SELECT t.g, min(x.w) AS w FROM t JOIN r AS x ON x.k = t.k GROUP BY t.g"), 1),
    "of a union": (_joined("SELECT g, sum(k) AS n FROM (SELECT g, 1 AS k FROM t UNION ALL SELECT g, k FROM t) GROUP BY g"), 1),
    "a union of them": (_joined(f"SELECT * FROM {_COUNTS} UNION ALL SELECT g, max(w) FROM r GROUP BY g"), 2),
    "of an aggregate": (
        _joined("SELECT g, max(n) AS n FROM (SELECT g, s, count(*) AS n FROM t GROUP BY g, s) GROUP BY g"),
        1,
    ),
    "many groups": (_joined("SELECT s, g, count(*) AS n FROM m GROUP BY s, g"), 1),
}
#: Those of which large change sets are tried, which the driver does not hold.
_LEFT_TO_SPARK = ("filtered above", "below a join")
#: Queries whose aggregates keep all groups.
_WHOLE = {
    "read elsewhere": f"SELECT a.g, a.n FROM {_COUNTS} JOIN {_TWO} ON a.g = two.k UNION ALL SELECT g, n FROM {_COUNTS}",
    "not filtered": f"SELECT r.k, a.n FROM r JOIN {_COUNTS} ON a.g = r.k",
    "null-safe": f"SELECT two.k, a.n FROM {_TWO} JOIN {_COUNTS} ON a.g <=> two.k",
    "not by the key": f"SELECT two.k, a.n FROM {_TWO} JOIN {_COUNTS} ON a.g = two.g",
    "kept beside": f"SELECT two.k, a.n FROM {_COUNTS} LEFT JOIN {_TWO} ON a.g = two.k",
    "full outer": f"SELECT two.k, a.n FROM {_COUNTS} FULL JOIN {_TWO} ON a.g = two.k",
    "rows with ids": f"SELECT two.k, a.n FROM {_TWO} JOIN (SELECT g, count(*) AS n FROM e GROUP BY g) AS a ON a.g = two.k",
    "by a result": f"SELECT two.k, a.g FROM {_TWO} JOIN {_COUNTS} ON a.n = two.k",
}


def _t(k: int, g: int | None, s: str | None, v: int | None) -> Row:
    return (k, g, s, decimal(v))


_STEPS: list[dict[str, list[tuple[Row, int]]]] = [
    {
        "t": [(_t(1, 1, "a", 10), 1), (_t(2, 1, "b", 20), 1), (_t(3, 2, "a", None), 1), (_t(4, None, None, 7), 1)],
        "r": [((1, 1, 5), 1), ((2, 2, 1), 1), ((3, None, 4), 1), ((4, 9, 2), 1)],
        "m": [((1, "a"), 1), ((1, "b"), 2), ((None, "a"), 1)],
        "e": [((1, "a", 1), 1)],
    },
    {"t": [(_t(5, 1, "a", 500), 1), (_t(6, 3, "z", 1), 1), (_t(9, 2, "z", 1), 1)], "m": [((2, "a"), 1)]},
    # A filtered row comes, one goes, one changes without coming or going.
    {"r": [((2, 2, 1), -1), ((2, 2, 8), 1), ((1, 1, 5), -1), ((1, 1, 2), 1), ((3, None, 4), -1), ((3, 1, 5), 1)]},
    {
        "t": [(_t(2, 1, "b", 20), -1), (_t(2, 2, "b", 20), 1), (_t(3, 2, "a", None), -1), (_t(1, 1, "a", 10), -1)],
        "r": [((1, 1, 2), -1), ((1, 1, 9), 1), ((2, 2, 8), -1), ((5, None, 9), 1)],
        "m": [((1, "b"), -1), ((3, None), 1)],
    },
]


def _reduced(plan: PlanNode) -> Iterator[Aggregate]:
    for node in walk(plan):
        joins = [below for below in walk(node.child) if isinstance(below, Join)] if isinstance(node, Aggregate) else []
        if any(isinstance(below, Filter) for join in joins for below in walk(join)):
            yield node


@pytest.mark.parametrize("name", _REDUCED)
def test_reduced_aggregates(spark: SparkSession, name: str) -> None:
    query, count = _REDUCED[name]
    with Lab(spark, query, collect_shared=name not in _LEFT_TO_SPARK) as lab:
        own = [node for node in _reduced(lab.plan) if not any(isinstance(below, Aggregate) for below in walk(node.child))]
        assert len(own) == count
        for step in _STEPS:
            lab.step(step)
            lab.check()


def test_an_append_only_input_that_is_reduced_may_lose_rows(spark: SparkSession) -> None:
    """So its calls are kept in another way."""
    added = {**RELATIONS, "t": replace(RELATIONS["t"], append_only=True)}
    least = "(SELECT g, min(v) AS low FROM t GROUP BY g) AS a"
    with (
        Lab(spark, f"SELECT a.g, a.low FROM {least}", added) as whole,
        Lab(spark, f"SELECT two.k, a.low FROM {_TWO} JOIN {least} ON a.g = two.k", added) as reduced,
    ):
        for lab, kind in ((whole, "append-only min"), (reduced, "least")):
            (aggregate,) = (node for node in walk(lab.plan) if isinstance(node, Aggregate))
            assert [call.kind for call in aggregate.calls] == [kind]
        for step in _STEPS[:3]:
            reduced.step(step)
            reduced.check()


def test_a_filtered_relation_is_arranged_and_met_once(spark: SparkSession) -> None:
    query = f"SELECT two.k, two.g, a.n, m.s FROM {_TWO} JOIN {_COUNTS} ON a.g = two.k JOIN m ON m.g = two.k"
    with Lab(spark, query) as lab:
        (aggregate,) = _reduced(lab.plan)
        assert sum(isinstance(node, Join) for node in walk(aggregate.child)) == 1
        assert sum(isinstance(node, Arrange) for node in walk(lab.plan)) == 1
        for step in _STEPS:
            lab.step(step)
            lab.check()


@pytest.mark.parametrize("query", _WHOLE.values(), ids=_WHOLE)
def test_aggregates_of_all_groups(spark: SparkSession, query: str) -> None:
    assert not list(_reduced(plan_view(spark, query, RELATIONS)))


@pytest.mark.parametrize(("query", "groups"), [(_REDUCED["left outer"][0], 1), (_WHOLE["not filtered"], 3)])
def test_groups_that_are_not_met_are_not_kept(spark: SparkSession, query: str, groups: int) -> None:
    with Lab(spark, query) as lab:
        lab.step(_STEPS[0])
        counts = [desc.table_id for desc in lab.descs if "count" in desc.schema.label]
        assert lab._store.stored(counts, lab._version).count() == groups
