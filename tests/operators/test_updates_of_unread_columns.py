"""An update of columns that a view does not read ends where its rows are first held: nothing is looked up for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.operators.lab import Lab, Row, decimal

_T = [(k, k % 3, "s", decimal(k)) for k in range(6)]
_R = [(k, k % 2, 10 * k) for k in range(4)]
_BEFORE = {"t": [(row, 1) for row in _T], "r": [(row, 1) for row in _R]}
#: Queries that read neither ``t.v`` nor ``r.w``, by join type.
_QUERIES = {
    "inner": "SELECT t.k, t.s, r.k AS other FROM t JOIN r ON t.g = r.g",
    "left outer": "SELECT t.k, r.k AS other FROM t LEFT JOIN r ON t.g = r.g",
    "semi": "SELECT k, s FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.g = t.g AND r.k < t.k)",
    "of three": "SELECT a.k, b.k AS other, r.k AS third FROM t a JOIN t b ON a.g = b.k JOIN r ON b.g = r.g",
    "of two that read other columns": "SELECT a.k, b.s, r.k AS third FROM t a JOIN t b ON a.g = b.k JOIN r ON b.g = r.g",
}


def _updates(read: bool) -> Mapping[str, list[tuple[Row, int]]]:
    """Both relations' rows updated: in columns that nobody reads, and ``t.s`` of one row besides."""
    t = [(row, (*row[:3], decimal(100 + row[0]))) for row in _T]
    if read:
        t[0] = (_T[0], (*_T[0][:2], "other", decimal(7)))
    r = [(row, (*row[:2], row[2] + 1)) for row in _R]
    return {name: [p for old, new in rows for p in ((old, -1), (new, 1))] for name, rows in (("t", t), ("r", r))}


@pytest.mark.parametrize("query", _QUERIES.values(), ids=_QUERIES)
@pytest.mark.parametrize("read", [False, True], ids=["unread", "one read"])
def test_updates(spark: SparkSession, steps: list[DataFrame], query: str, read: bool) -> None:
    with Lab(spark, query) as lab:
        lab.step(_BEFORE)
        lab.check()
        before, _ = lab.changes_of_view(), steps.clear()
        lab.step(_updates(read))
        if not read:
            assert len(steps) == 2, "each relation once, and nothing that it meets"
            assert lab.changes_of_view() == before
        lab.check()
