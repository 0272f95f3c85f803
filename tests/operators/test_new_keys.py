"""A join of new rows whose keys nobody had before reads the other side once: no pair is missed and none counted twice."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from tests.operators.lab import Lab
from tests.operators.watching import watch_joins

_T1, _T2, _T7, _T9 = ((k, g, "s", Decimal(k)) for k, g in ((1, 1), (2, 2), (7, 1), (9, 9)))
_BEFORE = {"t": [(_T1, 1), (_T2, 1)], "r": [((1, 1, 10), 1), ((2, 2, 20), 1)]}
_QUERIES = {
    "on a key of each": "SELECT t.k, t.v, r.w FROM t JOIN r ON t.k = r.k",
    "on another column": "SELECT t.k, r.w FROM t JOIN r ON t.g = r.g AND t.k <= r.k",
    "filtered and renamed": "SELECT a.x, r.w FROM (SELECT k + 0 AS n, g AS x FROM t WHERE v > 0) a JOIN r ON a.x = r.g",
    "of joins": "SELECT a.k, b.w FROM (SELECT t.k, r.g FROM t JOIN r ON t.k = r.k) a JOIN r b ON a.g = b.g",
    "with itself": "SELECT a.k, b.k AS other FROM t a JOIN t b ON a.g = b.g",
    "null-safe": "SELECT t.k, r.w FROM t JOIN r ON t.g <=> r.g",
}
#: What follows, and whether one change set then makes all pairs of the first query.
_EPOCHS = (
    ("new keys on both sides", {"t": [(_T9, 1)], "r": [((9, 9, 90), 1)]}, True),
    ("a new key on one side, an old one on the other", {"t": [(_T7, 1)], "r": [((1, 1, 10), -1), ((1, 1, 11), 1)]}, True),
    ("old keys on both sides", {"t": [(_T1, -1)], "r": [((1, 1, 11), -1), ((1, 1, 12), 1)]}, False),
    ("NULLs", {"t": [((8, None, None, None), 1)], "r": [((18, None, 80), 1)]}, True),
    ("new and old keys", {"t": [(_T9, -1), (_T1, 1)], "r": [((19, 1, 0), 1), ((9, 9, 90), -1)]}, False),
)


@pytest.mark.parametrize("query", _QUERIES)
def test_new_and_old_keys(spark: SparkSession, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = watch_joins(monkeypatch)
    with Lab(spark, _QUERIES[query]) as lab:
        lab.step(_BEFORE)
        lab.check()
        for name, changes, expected in _EPOCHS:
            alone.clear()
            lab.step(changes)
            lab.check()
            if query == "on a key of each":
                assert alone == [expected], name
