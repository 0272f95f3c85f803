"""A backfill of many rows: sources are read again and not held, matches are counted at once; the oracle is the query."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.plan.nodes import Join, walk
from tests.operators.lab import Lab, Row, decimal

_OF_T = "SELECT g, count(*) AS n FROM t GROUP BY g"
_QUERIES = {
    "left outer": "SELECT t.k, r.k AS rk, r.w FROM t LEFT JOIN r ON t.g = r.g",
    "left outer, filtered": "SELECT t.k, r.k AS rk FROM t LEFT JOIN r ON t.g = r.g AND r.w > t.k",
    "left outer without a key": "SELECT t.k, r.k AS rk FROM t LEFT JOIN r ON t.k < r.w",
    "left outer, null-safe": "SELECT t.k, r.k AS rk FROM t LEFT JOIN r ON t.g <=> r.g AND t.s <=> CAST(r.w AS STRING)",
    "full outer": "SELECT t.k, r.k AS rk FROM t FULL JOIN r ON t.g = r.g",
    "full outer of multisets": "SELECT m.g, m.s, e.g AS eg FROM m FULL JOIN e ON m.g = e.g",
    "right outer, filtered": "SELECT m.s, r.k FROM m RIGHT JOIN r ON m.g = r.g AND m.s > 'a'",
    "semi of a multiset": "SELECT g, s FROM m WHERE g IN (SELECT g FROM r WHERE w > 1)",
    "semi and anti of one source": (
        "SELECT k, g FROM t WHERE EXISTS (SELECT 1 FROM t AS o WHERE o.g = t.g AND o.k <> t.k) "
        "AND NOT EXISTS (SELECT 1 FROM t AS o WHERE o.g = t.g AND o.k > t.k AND o.s = t.s)"
    ),
    "anti of equal rows": "SELECT k FROM r WHERE NOT EXISTS (SELECT 1 FROM m WHERE m.g = r.g AND m.s <> 'b')",
    "not in": "SELECT k FROM t WHERE g NOT IN (SELECT g FROM m WHERE g IS NOT NULL)",
    "existence": "SELECT k FROM t WHERE g IN (SELECT g FROM m) OR k > 2",
    "of an aggregate": f"SELECT r.k, a.n FROM r LEFT JOIN ({_OF_T}) AS a ON r.g = a.g AND a.n > r.k",
    "counted calls": "SELECT g, count(DISTINCT s) AS d, min(v) AS low, max(s) AS last, sum(v) AS total FROM t GROUP BY g",
    "a source twice": f"SELECT t.k, a.n FROM t JOIN ({_OF_T}) AS a ON t.g = a.g",
}


def _t(k: int, g: int | None, s: str | None) -> tuple[Row, int]:
    return (k, g, s, decimal(k)), 1


_ALL: dict[str, list[tuple[Row, int]]] = {
    "t": [_t(1, 1, "a"), _t(2, 1, "5"), _t(3, 2, "a"), _t(4, None, None), _t(5, 7, "5")],
    "r": [((1, 1, 5), 1), ((2, 2, 1), 1), ((3, None, 3), 1), ((4, 9, 2), 1), ((5, 1, None), 1)],
    "m": [((1, "a"), 2), ((1, "b"), 1), ((2, "b"), 3), ((None, "a"), 1), ((8, None), 1)],
    "e": [((1, "a", 1), 1), ((1, "b", 2), 1), ((None, "a", 3), 1), ((5, "a", 4), 1)],
}
_THEN: list[dict[str, list[tuple[Row, int]]]] = [
    {"r": [((1, 1, 5), -1), ((5, 1, None), -1), ((6, 7, 9), 1)], "m": [((1, "a"), -1), ((9, "c"), 1)]},
    {"t": [(row, -weight) for row, weight in _ALL["t"][:3]], "m": [((1, "a"), -1), ((1, "b"), -1)], "e": [((8, "c", 5), 1)]},
    {"r": [((2, 2, 1), -1), ((7, None, 1), 1)], "m": [((2, "b"), -3)], "t": [_t(6, 9, "2")]},
]


@pytest.mark.parametrize("query", _QUERIES.values(), ids=_QUERIES)
def test_what_is_counted_at_once_is_counted_on(spark: SparkSession, query: str) -> None:
    with Lab(spark, query, collect_shared=False) as lab:
        lab.step(_ALL)
        lab.check()
        for step in _THEN:
            lab.step(step)
            lab.check()


@pytest.mark.parametrize("empty", ["t", "r", "m"])
def test_one_side_comes_later(spark: SparkSession, empty: str) -> None:
    for name in ("left outer", "semi of a multiset", "not in", "full outer"):
        with Lab(spark, _QUERIES[name], collect_shared=False) as lab:
            lab.step({**_ALL, empty: []})
            lab.check()
            lab.step({empty: _ALL[empty]})
            lab.check()


def test_sources_are_not_held(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[DataFrame] = []
    frames = type(spark.range(1))
    checkpoint = frames.localCheckpoint

    def noted(df: DataFrame, *arguments: object, **options: object) -> DataFrame:
        held.append(df)
        return checkpoint(df, *arguments, **options)

    monkeypatch.setattr(frames, "localCheckpoint", noted)
    with Lab(spark, _QUERIES["a source twice"], collect_shared=False) as lab:
        assert [node for node in walk(lab.plan) if isinstance(node, Join)]
        lab.step(_ALL)
        lab.check()
        assert len(held) == 1, "the groups; the rows they are made of, and which meet them, are read twice"
