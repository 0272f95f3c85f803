"""State that expires: nothing changes before anything has, and after that nothing gets stuck or goes below zero."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import WEIGHT
from tests.operators.histories import drawn_history, epochs_of, seeds_of
from tests.operators.lab import Lab, decimal
from tests.operators.test_differential import QUERIES

#: Each kind of state that expires, or that keeps what comes from it.
_KEEPING = [
    "left outer join",
    "full outer join",
    "not in, pairs",
    "existence join",
    "aggregate",
    "aggregate of a multiset",
    "min and max",
    "distinct calls",
    "global aggregate",
    "materialized input",
    "rollup",
    "window",
    "top n",
    "join over aggregate",
    "three-way join",
]


@pytest.mark.parametrize("name", _KEEPING)
def test_histories_over_state_that_may_expire_and_does(spark: SparkSession, name: str) -> None:
    """As long as nothing has expired, the view is exact; after that, changes of what is gone are taken as they come."""
    for seed in seeds_of(f"{name}, expiring"):
        with Lab(spark, QUERIES[name], may_have_expired=True) as lab:
            *first, last = epochs_of(drawn_history(seed, epochs=4))
            for changes in first:
                lab.step(changes)
                lab.check()
            lab.expire()
            lab.step(last)
            _is_sound(lab)


def _is_sound(lab: Lab) -> None:
    """No row of any state is there less than no times, and each key of the view once."""
    for table, rows in lab.stored().items():
        if WEIGHT in rows.columns:
            below = [row for row in rows.collect() if row[WEIGHT] < 0]
            assert not below, f"{table}: {below}"
    if lab.plan.stream_key is not None:
        rows = list(lab.stored().values())[-1]
        keys = rows.groupBy(*[F.col(f"`{name}`") for name in lab.plan.stream_key]).agg(F.sum(WEIGHT).alias("n"))
        assert not keys.where("n > 1").collect()


def _view(lab: Lab) -> list[tuple]:
    return sorted((tuple(row) for row in lab.view().collect()), key=repr)


def test_a_group_that_has_expired_starts_again(spark: SparkSession) -> None:
    one, two, other = (1, 1, "a", decimal(100)), (2, 1, "b", decimal(200)), (3, 2, "a", decimal(300))
    with Lab(spark, QUERIES["aggregate"]) as lab:
        lab.step({"t": [(one, 1), (two, 1), (other, 1)]})
        lab.expire()
        before = _view(lab)
        lab.step({"t": [(one, -1)]})
        assert _view(lab) == before, "what has expired can no longer be retracted"
        lab.step({"t": [((4, 1, "c", decimal(700)), 1)]})
        assert [row for row in _view(lab) if row[0] == 1] == [(1, decimal(700), 1, 1, decimal(700))]
        assert [row for row in _view(lab) if row[0] == 2] == [row for row in before if row[0] == 2]
        # Of a row from before nothing tells that it is not one of those since.
        lab.step({"t": [(two, -1)]})
        assert [row for row in _view(lab) if row[0] == 1] == []
        _is_sound(lab)


def test_rows_of_a_group_before_it_expired_are_not_those_since(spark: SparkSession) -> None:
    one, two, three = (1, 1, "a", decimal(100)), (2, 1, "b", decimal(200)), (3, 1, "c", decimal(300))
    with Lab(spark, QUERIES["aggregate"]) as lab:
        lab.step({"t": [(one, 1), (two, 1), (three, 1)]})
        lab.expire()
        # Of an update the new row is taken, as an insertion.
        lab.step({"t": [(one, -1), ((1, 1, "z", decimal(700)), 1)]})
        assert _view(lab) == [(1, decimal(700), 1, 1, decimal(700))]
        # More rows are retracted than it has now.
        lab.step({"t": [(two, -1), (three, -1)]})
        assert _view(lab) == []
        _is_sound(lab)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("min and max", (1, decimal(700), "y")), ("distinct calls", (1, 2, decimal(1500), 2))],
    ids=["extremes", "distinct values"],
)
def test_a_value_from_before_its_group_expired_is_in_no_count(spark: SparkSession, name: str, expected: tuple) -> None:
    old = (1, 1, "a", decimal(100))
    with Lab(spark, QUERIES[name]) as lab:
        lab.step({"t": [(old, 1)]})
        lab.expire()
        lab.step({"t": [((2, 1, "x", decimal(700)), 1), ((3, 1, "y", decimal(800)), 1)]})
        lab.step({"t": [(old, -1)]})
        assert _view(lab) == [expected]
        _is_sound(lab)


@pytest.mark.parametrize("name", ["min and max", "distinct calls", "materialized input"])
def test_values_live_as_long_as_their_group(spark: SparkSession, name: str) -> None:
    """The group is touched by a row that has no value."""
    old = (1, 1, "a", decimal(100))
    with Lab(spark, QUERIES[name]) as lab:
        lab.step({"t": [(old, 1)]})
        lab.step({"t": [((2, 1, None, None), 1)]})
        lab.expire(until=1)
        lab.step({"t": [(old, -1)]})
        lab.check(wait=True)


def test_a_record_that_has_expired_meets_nothing_more_and_its_rows_stay(spark: SparkSession) -> None:
    query = "SELECT x.k, x.w, e.s FROM (SELECT t.k, t.g, r.w FROM t LEFT JOIN r ON t.k = r.k) x JOIN e ON x.g = e.g"
    with Lab(spark, query) as lab:
        assert [d.schema.label for d in lab.descs if d.schema.label in ("left", "right")] == ["left", "left", "right"]
        old, new, row = (1, 1, "a", None), (2, 1, "b", None), (1, 1, 7)
        lab.step({"t": [(old, 1)], "e": [((1, "x", 1), 1)]})
        lab.expire()
        lab.step({"t": [(old, -1)], "r": [(row, 1)]})
        assert _view(lab) == [(1, None, "x")], "it is not retracted, nor matched by what comes"
        lab.step({"t": [(new, 1)], "e": [((1, "y", 2), 1)]})
        assert _view(lab) == [(1, None, "x"), (2, None, "y")], "neither meets what has expired"
        # The key comes back: its row replaces that of the view with the same key, where there is one.
        lab.step({"t": [(old, 1)]})
        assert _view(lab) == [(1, 7, "y"), (1, None, "x"), (2, None, "y")]
        _is_sound(lab)


def test_a_record_is_retracted_under_the_count_that_it_was_stored_with(spark: SparkSession) -> None:
    """Some of what had matched it has expired, so that to count its matches again would find less."""
    record = (1, 1, "a", None)
    with Lab(spark, "SELECT t.k, m.s FROM t FULL JOIN m ON t.g = m.g") as lab:
        lab.step({"m": [((1, "gone"), 1)]})
        lab.step({"t": [(record, 1)]})
        lab.step({"m": [((1, "there"), 1)]})
        lab.expire(until=2)
        left = next(name for name in lab.stored() if name.endswith("left"))
        assert [row["_num_associations"] for row in lab.stored()[left].collect()] == [2]
        lab.step({"t": [(record, -1)]})
        assert lab.stored()[left].isEmpty()
        assert _view(lab) == [(1, "gone"), (None, "there")]
        _is_sound(lab)
