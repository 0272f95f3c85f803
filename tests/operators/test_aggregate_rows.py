"""Joins read the rows of an aggregate out of the state that it keeps; the oracle is the query."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Join, walk
from tests.operators.lab import Lab, Row, decimal
from tests.sizes import Resized

_SUMS = "SELECT g, s, sum(v) AS total, avg(v) AS mean, count(*) AS n FROM t GROUP BY g, s"
_OF_R = "SELECT g, sum(w) AS w FROM r GROUP BY g"
_QUERIES = {
    "inner": f"SELECT r.k, a.s, a.total, a.mean, a.n FROM r JOIN ({_SUMS}) AS a ON r.g = a.g",
    "inner with a condition": f"SELECT r.k, a.s FROM r JOIN ({_SUMS}) AS a ON r.g = a.g AND r.w < a.total",
    "null-safe": f"SELECT r.k, a.s, a.n FROM r JOIN ({_SUMS}) AS a ON r.g <=> a.g",
    "left outer": f"SELECT r.k, a.s, a.total, a.n FROM r LEFT JOIN ({_SUMS}) AS a ON r.g = a.g",
    "anti": f"SELECT r.k FROM r WHERE NOT EXISTS (SELECT 1 FROM ({_SUMS}) AS a WHERE r.g = a.g AND a.n > r.k)",
    "distinct": "SELECT r.k, d.s FROM r JOIN (SELECT DISTINCT g, s FROM t) AS d ON r.g = d.g",
    "computed above": f"SELECT r.k, a.x FROM r JOIN (SELECT g AS h, total * 2 AS x FROM ({_SUMS})) AS a ON r.g = a.h",
    "of two aggregates": f"SELECT a.n, b.w FROM ({_SUMS}) AS a JOIN ({_OF_R}) AS b ON a.g = b.g",
    "one row": "SELECT k, w FROM r WHERE w * 2 > (SELECT avg(w) FROM r)",
    "correlated": "SELECT k FROM t WHERE v >= (SELECT avg(v) FROM t AS u WHERE u.g = t.g)",
    "equal to one row": "SELECT k FROM r WHERE w = (SELECT max(w) FROM r)",
    "a key of one row": "SELECT k FROM t WHERE g IN (SELECT k FROM r WHERE w > 2)",
}


def _t(k: int, g: int | None, s: str | None, v: int | None) -> Row:
    return (k, g, s, decimal(v))


_STEPS: list[dict[str, list[tuple[Row, int]]]] = [
    {
        "t": [(_t(1, 1, "a", 10), 1), (_t(2, 1, "b", 20), 1), (_t(3, 2, "a", None), 1), (_t(4, None, None, 7), 1)],
        "r": [((1, 1, 5), 1), ((2, 2, 1), 1), ((3, None, 3), 1), ((4, 9, 2), 1)],
    },
    {"t": [(_t(5, 1, "a", 500), 1), (_t(6, 9, "z", 1), 1)]},
    {"r": [((5, 1, 9), 1), ((2, 2, 1), -1)]},
    {
        "t": [(_t(2, 1, "b", 20), -1), (_t(4, None, None, 7), -1), (_t(4, None, None, 8), 1)],
        "r": [((6, 2, 9), 1), ((7, None, None), 1)],
    },
    {"t": [(_t(7, 3, "c", 1), 1), (_t(7, 3, "c", 1), -1)]},
    {"t": [(_t(1, 1, "a", 10), -1), (_t(5, 1, "a", 500), -1), (_t(3, 2, "a", None), -1)]},
    {"r": [((1, 1, 5), -1), ((1, 2, 5), 1)], "t": [(_t(8, 2, None, 3), 1)]},
]


@pytest.mark.parametrize("query", _QUERIES.values(), ids=_QUERIES)
@pytest.mark.parametrize("read", ["whole", "by key", "left to Spark"])
def test_epochs_equal_the_query(spark: SparkSession, resized: Resized, query: str, read: str) -> None:
    if read != "whole":
        resized(whole_state_rows=0)
    with Lab(spark, query, collect_shared=read != "left to Spark") as lab:
        for step in _STEPS:
            lab.step(step)
            lab.check()


@pytest.mark.parametrize("name", ["inner", "left outer", "distinct", "computed above", "of two aggregates", "one row"])
def test_the_rows_of_an_aggregate_are_not_copied(spark: SparkSession, name: str) -> None:
    with Lab(spark, _QUERIES[name]) as lab:
        (join,) = (node for node in walk(lab.plan) if isinstance(node, Join))
        assert join.right_in_place
        assert not [desc for desc in lab.descs if desc.schema.label == "right"]


def test_rows_looks_up_by_a_result_are_copied(spark: SparkSession) -> None:
    query = f"SELECT r.k, a.s FROM r JOIN ({_SUMS}) AS a ON r.k = a.n"
    with Lab(spark, query) as lab:
        (join,) = (node for node in walk(lab.plan) if isinstance(node, Join))
        assert join.left_in_place
        assert not join.right_in_place
        for step in _STEPS:
            lab.step(step)
            lab.check()


def test_the_one_row_of_an_aggregate_is_met_once(spark: SparkSession) -> None:
    """Joins that follow each other would else multiply what cancels: the old row, the same taken back, and the new one."""
    of_t = ("count(*)", "sum(k)", "count(s)", "sum(v)")
    selected = ", ".join(f"(SELECT {call} FROM t) AS c{n}" for n, call in enumerate(of_t))
    with Lab(spark, f"SELECT r.k, {selected} FROM r WHERE k = 1") as lab:
        lab.step(_STEPS[0])
        lab.step(_STEPS[1])
        lab.check()
        left = [desc.table_id for desc in lab.descs if desc.schema.label == "left"]
        written = lab._store.stored(left, lab._version).where(f"epoch = {lab.epoch}")
        assert written.count() == 3 * 2, "each join: its row as it was and as it is"
