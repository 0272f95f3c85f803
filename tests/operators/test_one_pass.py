"""What an epoch writes is computed in one pass where the view is made of groups, and what comes of groups is no step."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.operators.lab import Lab, Row, decimal

#: An average by hand: of a group without rows it would be a division by zero.
_SHARES = "SELECT g, sum(v) / count(*) AS share, count(*) > 2 AS many FROM t GROUP BY g HAVING count(*) <> 3"
_MANY = "SELECT g, count(*) > 2 AS many FROM t GROUP BY g"
_OVERALL = "SELECT sum(v) / count(*) AS share, max(v) AS greatest FROM t HAVING count(*) > 1"
_LARGEST = "SELECT t.k, m.largest FROM t JOIN (SELECT g, max(w) AS largest FROM r GROUP BY g) AS m ON t.g = m.g"
_FIRST = "SELECT g, sum(v) AS total FROM t GROUP BY g ORDER BY total DESC, g LIMIT 2"


def _row(k: int, g: int | None, v: int | None) -> Row:
    return (k, g, "a", decimal(v))


def _inserted(*rows: Row) -> list[tuple[Row, int]]:
    return [(row, 1) for row in rows]


def _deleted(*rows: Row) -> list[tuple[Row, int]]:
    return [(row, -1) for row in rows]


_BEFORE = [_row(1, 1, 10), _row(2, 1, 20), _row(3, 1, 30), _row(4, 2, 5), _row(5, 3, 7), _row(6, None, None)]
_CHANGES = {
    "a group vanishes": _deleted(_row(4, 2, 5)),
    "a group comes and one grows": _inserted(_row(7, 8, 1), _row(8, 3, 4)),
    "a group keeps its results": [*_deleted(_row(3, 1, 30)), *_inserted(_row(9, 1, 30))],
    "rows come and go": [*_inserted(_row(10, 9, 1)), *_deleted(_row(10, 9, 1))],
    "a group grows into the filter": _inserted(_row(11, 1, 100)),
    "all groups vanish": _deleted(
        _row(1, 1, 10), _row(2, 1, 20), _row(5, 3, 7), _row(6, None, None), _row(7, 8, 1), _row(8, 3, 4), _row(9, 1, 30),
        _row(11, 1, 100),
    ),
}  # fmt: skip


@pytest.mark.parametrize("query", [_SHARES, _MANY, _OVERALL, _FIRST])
@pytest.mark.parametrize("collects", [True, False], ids=["held by the driver", "left to Spark"])
def test_filters_and_computed_columns_over_groups_that_come_and_go(spark: SparkSession, query: str, collects: bool) -> None:
    with Lab(spark, query, collect_shared=collects) as lab:
        lab.step({"t": _inserted(*_BEFORE)})
        lab.check()
        for change in _CHANGES.values():
            lab.step({"t": change})
            lab.check()


@pytest.mark.parametrize("query", [_SHARES, _MANY])
def test_an_epoch_of_groups_is_one_pass(spark: SparkSession, steps: list[DataFrame], query: str) -> None:
    with Lab(spark, query) as lab:
        lab.step({"t": _inserted(*_BEFORE)})
        steps.clear()
        lab.step({"t": _inserted(_row(7, 8, 1), _row(8, 3, 4))})
        assert not steps
        lab.check()


def test_a_view_whose_groups_keep_their_results_is_not_written(spark: SparkSession) -> None:
    with Lab(spark, _MANY) as lab:
        lab.step({"t": _inserted(*_BEFORE)})
        before = lab.changes_of_view()
        lab.step({"t": _inserted(_row(7, 1, 1))})
        lab.check()
        assert lab.changes_of_view() == before, "the state moves, the view does not"


def test_a_group_retracted_more_often_than_it_is_there_is_an_error(spark: SparkSession) -> None:
    with Lab(spark, _MANY) as lab:
        lab.step({"t": _inserted(*_BEFORE)})
        lab.bags["t"][_row(12, 5, 1)] = 1
        with pytest.raises(Exception, match="more rows of a group are retracted than it has"):
            lab.step({"t": _deleted(_row(12, 5, 1))})


def test_groups_below_a_join_are_no_step_of_their_own_and_none_where_nothing_changed(
    spark: SparkSession, steps: list[DataFrame]
) -> None:
    with Lab(spark, _LARGEST) as lab:
        lab.step({"t": _inserted(*_BEFORE), "r": _inserted((1, 1, 5), (2, 1, 9), (3, 3, 2))})
        lab.check()
        steps.clear()
        lab.step({"r": _inserted((4, 3, 8))})
        assert len(steps) == 2, "the change, and what the groups had and have"
        lab.check()
        steps.clear()
        lab.step({"r": _inserted((5, 3, 1))})
        lab.check()
        assert len(steps) == 2, "the same, and the join asks for nothing"
