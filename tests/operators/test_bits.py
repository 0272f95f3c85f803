"""bit_xor, bit_or and bit_and without the rows of their groups; the oracle is the query."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Aggregate, Field, walk
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.state_lib.constants import ROW_ID
from tests.operators.histories import seeds_of
from tests.operators.lab import Lab, Row

_WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_COLUMNS = (Field("g", "int"), *(Field(name, name) for name in _WIDTHS))
_RELATIONS = {
    "bag": Relation("bag", _COLUMNS),
    "log": Relation("log", _COLUMNS, (ROW_ID,), True, (Field(ROW_ID, "bigint", False),)),
}
_FUNCTIONS = ("bit_xor", "bit_or", "bit_and")
_OF_ALL_TYPES = ", ".join(f"{f}({t}) AS {f}_{t}" for f in _FUNCTIONS for t in _WIDTHS)
_OTHERS = ", ".join(
    f"{f}(DISTINCT int) AS {f}_d, {f}(bigint) FILTER (WHERE smallint > 0) AS {f}_f, "
    f"{f}(DISTINCT smallint) FILTER (WHERE g IS NULL OR int < 0) AS {f}_df"
    for f in _FUNCTIONS
)
_QUERIES = {
    "groups": f"SELECT g, {_OF_ALL_TYPES} FROM {{}} GROUP BY g",
    "one group": f"SELECT {_OF_ALL_TYPES} FROM {{}}",
    "distinct and filtered": f"SELECT g, {_OTHERS} FROM {{}} GROUP BY g",
    "distinct and filtered, one group": f"SELECT count(*) AS n, {_OTHERS} FROM {{}}",
    "in a join": "SELECT a.g, a.x, b.o, b.g AS other FROM (SELECT g, bit_xor(int) AS x FROM {0} GROUP BY g) AS a "
    "JOIN (SELECT g, bit_or(int) AS o, bit_and(int) AS n FROM {0} GROUP BY g) AS b ON a.g = b.g WHERE a.x != b.n",
}


def _value(draw: random.Random, width: int) -> int | None:
    """NULL, an end of the type, or one of few values."""
    ends = (-(1 << width - 1), (1 << width - 1) - 1, -1, 0)
    return draw.choice([None, draw.choice(ends), draw.randint(-3, 5), draw.randint(-(1 << width - 1), ends[1])])


def _row(draw: random.Random) -> Row:
    return (draw.choice([None, 0, 1, 2]), *(_value(draw, width) for width in _WIDTHS.values()))


def _epochs(draw: random.Random) -> list[list[tuple[Row, int]]]:
    """Rows come, some go, a group goes, all go, and one comes back."""
    rows = {_row(draw): draw.choice([1, 1, 2, 3]) for _ in range(14)}
    rows[0, None, None, None, None] = 1
    gone = {row: draw.randint(1, n) for row, n in rows.items() if draw.random() < 0.4}
    left = {row: n - gone.get(row, 0) for row, n in rows.items()}
    of_one = {row: n for row, n in left.items() if n and row[0] == 1}
    added = {_row(draw): 1 for _ in range(3)}
    rest = {row: n for row, n in left.items() if n and row[0] != 1}
    return [
        list(rows.items()),
        [(row, -n) for row, n in gone.items()],
        [*((row, -n) for row, n in of_one.items()), *((row, n) for row, n in added.items())],
        [(row, -n) for row, n in [*rest.items(), *added.items()]],
        [(_row(draw), 3)],
    ]


@pytest.mark.parametrize("name", _QUERIES)
def test_deletions_are_taken_back(spark: SparkSession, name: str) -> None:
    with Lab(spark, _QUERIES[name].format("bag"), _RELATIONS, strict=True) as lab:
        kinds = {call.kind for node in walk(lab.plan) if isinstance(node, Aggregate) for call in node.calls}
        assert kinds - {"count"} <= {"bit_xor", "distinct bit_xor", "bit_or", "bit_and"}
        for changes in _epochs(random.Random(seeds_of(name)[0])):
            lab.step({"bag": changes})
            lab.check()


@pytest.mark.parametrize("name", list(_QUERIES)[:-1])
def test_rows_that_are_only_added(spark: SparkSession, name: str) -> None:
    draw = random.Random(seeds_of(name)[0])
    with Lab(spark, _QUERIES[name].format("log"), _RELATIONS) as lab:
        kinds = {call.kind for node in walk(lab.plan) if isinstance(node, Aggregate) for call in node.calls}
        assert kinds - {"count"} <= {"bit_xor", "distinct bit_xor", "append-only bit_or", "append-only bit_and"}
        for epoch in range(3):
            lab.step({"log": [((*_row(draw), 10 * epoch + n), 1) for n in range(5)]})
            lab.check()


def test_null_alone_has_no_bits(spark: SparkSession) -> None:
    calls = "bit_or(NULL) AS n, bit_xor(DISTINCT NULL) AS d, bit_and(length(string(int))) AS l"
    with Lab(spark, f"SELECT {calls} FROM bag", _RELATIONS) as lab:
        for changes in ([((1, None, 2, 300, None), 2)], [((1, None, 2, 300, None), -1), ((2, 1, 1, 7, 1), 1)]):
            lab.step({"bag": changes})
            lab.check()


@pytest.mark.parametrize("relation", ["bag", "log"])
def test_all_rows_are_a_group_before_there_are_any(spark: SparkSession, relation: str) -> None:
    with Lab(spark, _QUERIES["one group"].format(relation), _RELATIONS) as lab:
        for n, changes in enumerate(([], [((1, 5, 5, 5, 5), 1)], [((1, 3, 3, 3, 3), 1)])):
            ids = (n,) if relation == "log" else ()
            lab.step({relation: [((*row, *ids), weight) for row, weight in changes]})
            lab.check()


def test_groups_without_a_value_come_and_go(spark: SparkSession) -> None:
    """NULL is not 0."""
    nothing, zero = (1, None, None, None, None), (1, 0, 0, 0, 0)
    with Lab(spark, _QUERIES["groups"].format("bag"), _RELATIONS) as lab:
        for changes in ([(nothing, 1)], [(zero, 2)], [(zero, -1)], [(zero, -1)], [(nothing, -1)]):
            lab.step({"bag": changes})
            lab.check()
