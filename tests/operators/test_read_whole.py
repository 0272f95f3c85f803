"""What is small is read whole, without a step to learn which keys matter: same rows, fewer steps."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.operators import in_place, join
from relstate_dagster.state_lib.tuning import tuning
from tests.operators.lab import Lab, Row, decimal
from tests.sizes import Resized

_JOINS = """SELECT t.k, a.w AS first, b.w AS second FROM t JOIN r AS a ON t.g = a.k JOIN r AS b ON a.g = b.k WHERE b.w > 1"""
_SUMS = "SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g"


def _rows(first: int, last: int, weight: int = 1) -> list[tuple[Row, int]]:
    return [((k, k % 5, "a", decimal(k)), weight) for k in range(first, last)]


@pytest.mark.parametrize("sent_rows", [1000, 0], ids=["the side is sent", "Spark chooses"])
def test_a_chain_of_small_keyed_sides_is_one_plan(
    spark: SparkSession, steps: list[DataFrame], resized: Resized, sent_rows: int
) -> None:
    resized(sent_rows=sent_rows)
    counts = []
    for whole_rows in (tuning().unfiltered_rows, 0):
        resized(unfiltered_rows=whole_rows)
        with Lab(spark, _JOINS) as lab:
            lab.step({"t": _rows(0, 20), "r": [((k, (k + 1) % 5, k), 1) for k in range(5)]})
            lab.check()
            steps.clear()
            lab.step({"t": [*_rows(3, 6, -1), *_rows(20, 30)]})
            lab.check()
            counts.append(len(steps))
    assert counts[0] < counts[1], "the joins took steps of their own"


def test_a_side_of_all_pairs_is_as_large_as_their_product(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, resized: Resized
) -> None:
    whole: list[bool] = []
    matched = in_place.match_whole

    def noted(*given: Any) -> DataFrame | None:
        found = matched(*given)
        whole.append(found is not None)
        return found

    monkeypatch.setattr(join, "match_whole", noted)
    pairs = "SELECT a.k AS x, b.k AS y, b.w FROM r AS a CROSS JOIN r AS b"
    query = f"SELECT t.k, p.w FROM t JOIN ({pairs}) AS p ON t.g = p.x AND t.k = p.y"
    for limit in (37, 36):
        resized(unfiltered_rows=limit)
        with Lab(spark, query) as lab:
            lab.step({"t": _rows(0, 5), "r": [((k, k, k), 1) for k in range(6)]})
            lab.step({"t": _rows(5, 8)})
            lab.check()
    assert whole == [True, False]


def test_little_old_state_of_an_aggregate_is_one_step_less(
    spark: SparkSession, steps: list[DataFrame], resized: Resized
) -> None:
    counts = []
    for whole_rows in (20_000, 0):
        resized(whole_state_rows=whole_rows)
        with Lab(spark, _SUMS) as lab:
            lab.step({"t": _rows(0, 20)})
            lab.check()
            steps.clear()
            # A group vanishes, one comes, one changes, the others stay.
            lab.step({"t": [((k, k % 5, "a", decimal(k)), -1) for k in range(20) if k % 5 == 3]})
            lab.step({"t": [((50, 7, "a", decimal(None)), 1), ((51, None, None, None), 1), ((52, 1, "b", decimal(9)), 1)]})
            lab.check()
            lab.step({"t": [((52, 1, "b", decimal(9)), -1), ((53, 1, "b", decimal(9)), 1)]})
            lab.check()
            counts.append(len(steps))
    assert counts[0] == counts[1] - 3
