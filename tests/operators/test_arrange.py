"""Filtered rows of large sources, kept by their key if they are few: joins read them there; the oracle is the query."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Arrange, walk
from relstate_dagster.jobs.planner.planning import plan_view
from tests.operators.lab import RELATIONS, Lab, Row, decimal
from tests.sizes import Resized

_FEW = "(SELECT k, g FROM r WHERE w > 3) AS few"
_MEAN = "(SELECT avg(u.v) FROM t AS u WHERE u.g = few.k)"
#: Queries with one arrangement each.
_ARRANGED = {
    "inner": f"SELECT t.k, few.g FROM t JOIN {_FEW} ON t.g = few.k",
    "left outer": f"SELECT t.k, few.g FROM t LEFT JOIN {_FEW} ON t.g = few.k AND few.g < t.k",
    "semi": "SELECT k FROM t WHERE g IN (SELECT k FROM r WHERE w > 3)",
    "anti": f"SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM {_FEW} WHERE few.k = t.g)",
    "of joins": f"SELECT t.k, few.g FROM t JOIN {_FEW} ON t.g = few.k JOIN m ON m.g = few.g",
    "below a join": f"SELECT m.s, a.g FROM m JOIN (SELECT t.k, few.g FROM t JOIN {_FEW} ON t.g = few.k) a ON a.k = m.g",
    "null-safe": f"SELECT t.k, few.g FROM t JOIN {_FEW} ON t.g <=> few.k",
    "by another column": f"SELECT t.k, few.k AS other FROM t JOIN {_FEW} ON t.g = few.g",
    "without its key": "SELECT t.k, few.g FROM t JOIN (SELECT g, w + 1 AS w1 FROM r WHERE w > 3) few ON t.g = few.g",
    "read twice": f"SELECT t.k FROM t JOIN {_FEW} ON t.g = few.k WHERE t.v <= {_MEAN}",
}
#: Queries with none: not filtered, without a key, or with counts of their own.
_NOT_ARRANGED = (
    "SELECT t.k, r.w FROM t JOIN r ON t.g = r.k",
    f"SELECT few.k, m.s FROM {_FEW} LEFT JOIN m ON m.g = few.k",
    "SELECT m.s, n.s AS other FROM m JOIN (SELECT g, s FROM m WHERE s > 'a') AS n ON m.g = n.g",
)


def _t(k: int, g: int | None, v: int | None) -> Row:
    return (k, g, "s", decimal(v))


_STEPS: list[dict[str, list[tuple[Row, int]]]] = [
    {
        "t": [(_t(1, 1, 10), 1), (_t(2, 1, 20), 1), (_t(3, 2, None), 1), (_t(4, None, 7), 1), (_t(5, 9, 5), 1)],
        "r": [((n, n % 3, 5 if n in (1, 3) else 0), 1) for n in range(12)],
        "m": [((1, "a"), 1), ((1, "b"), 2), ((None, "a"), 1)],
    },
    {"t": [(_t(6, 1, 1), 1), (_t(7, 3, 1), 1), (_t(8, 2, 1), 1)], "m": [((2, "a"), 1)]},
    # A filtered row comes, one goes, one changes.
    {"r": [((2, 2, 0), -1), ((2, 2, 8), 1), ((1, 1, 5), -1), ((1, 1, 2), 1), ((3, 0, 5), -1), ((3, 1, 9), 1)]},
    {
        "t": [(_t(2, 1, 20), -1), (_t(2, 2, 20), 1), (_t(7, 3, 1), -1)],
        "r": [((1, 1, 2), -1), ((1, 1, 9), 1), ((2, 2, 8), -1), ((15, None, 9), 1)],
        "m": [((1, "b"), -1)],
    },
    # None is left, and one comes again.
    {"r": [((1, 1, 9), -1), ((3, 1, 9), -1), ((15, None, 9), -1)]},
    {"t": [(_t(9, 3, 1), 1)], "r": [((3, 2, 7), 1)]},
]


def _rows_kept(lab: Lab) -> int:
    ids = [desc.table_id for desc in lab.descs if desc.schema.label == "rows"]
    assert len(ids) == 1
    return lab._store.stored(ids, lab._version).count()


@pytest.mark.parametrize("name", _ARRANGED)
def test_rows_that_are_kept(spark: SparkSession, resized: Resized, name: str) -> None:
    resized(arranged_lookup_rows=10)
    # As of large sides, whose keys are collected first; and as of small ones, read whole.
    if name != "semi":
        resized(unfiltered_rows=0)
    with Lab(spark, _ARRANGED[name]) as lab:
        for number, step in enumerate(_STEPS):
            # What is kept is read by large changes as well, which the driver does not hold.
            lab.collect_shared = name != "below a join" or number < 2
            lab.step(step)
            lab.check()
            if number < 2:
                assert _rows_kept(lab) == (0, 2)[number], "from the first epoch on that seeks some"


@pytest.mark.parametrize(("many", "filtered"), [(13, 3), (10, 9)])
def test_rows_that_are_not_kept(spark: SparkSession, resized: Resized, many: int, filtered: int) -> None:
    resized(arranged_lookup_rows=many)
    with Lab(spark, f"SELECT t.k, few.g FROM t JOIN (SELECT * FROM r WHERE k < {filtered}) few ON t.g = few.k") as lab:
        for step in _STEPS[:4]:
            lab.step(step)
            lab.check()
        assert _rows_kept(lab) == 0


@pytest.mark.parametrize("query", _NOT_ARRANGED)
def test_sides_that_are_not_arranged(spark: SparkSession, query: str) -> None:
    assert not [node for node in walk(plan_view(spark, query, RELATIONS)) if isinstance(node, Arrange)]
