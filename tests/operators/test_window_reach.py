"""Windows whose results are computed near changes only; the oracle is the query.

Frames, functions and orders are drawn. Partitions are longer than frames reach, and changes are at their end, in the middle and
at the front; some orders have ties and NULLs.
"""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.operators import changed_windows, window
from relstate_dagster.jobs.plan.nodes import Field, Reach, Window, walk
from relstate_dagster.jobs.plan.relation import Relation
from tests.operators.histories import seeds_of
from tests.operators.lab import Lab, Row

_COLUMNS = (Field("k", "int", False), Field("g", "int"), Field("o", "int"), Field("x", "bigint"), Field("s", "string"))
_RELATIONS = {"w": Relation("w", _COLUMNS, ("k",)), "b": Relation("b", _COLUMNS)}

_OVER_ROWS = ("count(*)", "sum(x)", "min(s)", "max(x)", "first_value(x)", "last_value(s)", "nth_value(x, 2)", "avg(x)")
_OVER_PEERS = ("count(x)", "sum(x)", "min(s)", "max(x)", "avg(x)")
_OF_PLACES = ("row_number()", "lag(x, {n})", "lead(x, {n})", "lag(s) IGNORE NULLS", "lead(x, {n}) IGNORE NULLS")
_OF_TIES = ("rank()", "dense_rank()", "percent_rank()", "cume_dist()")
_ORDERS = ("ASC NULLS FIRST", "ASC NULLS LAST", "DESC NULLS FIRST", "DESC NULLS LAST")


def _bounds(draw: random.Random, *, of_rows: bool) -> str:
    """Two bounds in their order."""
    most = 4 if of_rows else 3
    steps = sorted(draw.randint(-most, most) for _ in range(2))
    texts = [f"{abs(n)} {'PRECEDING' if n < 0 else 'FOLLOWING'}" if n else "CURRENT ROW" for n in steps]
    if draw.random() < 0.3:
        texts[0] = "UNBOUNDED PRECEDING"
    if draw.random() < 0.2:
        texts[1] = "UNBOUNDED FOLLOWING"
    return f"BETWEEN {texts[0]} AND {texts[1]}"


def _window(draw: random.Random, number: int, relation: str) -> str:
    """One window function, with an order that makes it a node of its own."""
    direction = _ORDERS[number % len(_ORDERS)]
    # Equal rows of the bag are equal in all columns: whichever comes first, the results are the same.
    total = f"o {direction}, k, x, s" if relation == "b" else f"o {direction}, k"
    partition = draw.choice(["PARTITION BY g ", "PARTITION BY g ", ""])
    kind = draw.choice(["rows", "rows", "peers", "places", "ties"])
    if kind == "rows":
        return f"{draw.choice(_OVER_ROWS)} OVER ({partition}ORDER BY {total} ROWS {_bounds(draw, of_rows=True)})"
    if kind == "peers":
        frame = draw.choice(["", f" RANGE {_bounds(draw, of_rows=False)}"])
        return f"{draw.choice(_OVER_PEERS)} OVER ({partition}ORDER BY o {direction}{frame})"
    if kind == "places":
        return f"{draw.choice(_OF_PLACES).format(n=draw.randint(1, 3))} OVER ({partition}ORDER BY {total})"
    return f"{draw.choice(_OF_TIES)} OVER ({partition}ORDER BY o {direction})"


def _row(draw: random.Random, key: int) -> Row:
    order = draw.choice([None, key // 2, key // 2, draw.randint(0, 25)])
    return (key, draw.choice([0, 0, 0, 1]), order, draw.choice([None, draw.randint(-9, 9)]), draw.choice([None, "a", "b"]))


def _epochs(draw: random.Random, relation: str) -> list[list[tuple[Row, int]]]:
    """Long partitions, then changes at the end, in the middle, at the front, and several."""
    rows = {key: _row(draw, key) for key in range(44)}
    copies = {key: draw.choice([1, 1, 2]) if relation == "b" else 1 for key in rows}
    epochs = [[(row, copies[key]) for key, row in rows.items()]]
    for places in ([46], [43], [20], [0], [1, 22, 47]):
        changes: list[tuple[Row, int]] = []
        for key in places:
            old = rows.pop(key, None)
            if old is not None:
                changes.append((old, -copies[key] if draw.random() < 0.8 else -1))
                copies[key] += changes[-1][1]
                if copies[key]:
                    rows[key] = old
                    continue
            if old is None or draw.random() < 0.6:
                rows[key], copies[key] = _row(draw, key), 1
                if rows[key] != old:
                    changes.append((rows[key], 1))
                else:
                    changes.pop()
        if changes:
            epochs.append(changes)
    return epochs


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("relation", ["w", "b"])
def test_drawn_windows_equal_the_query(spark: SparkSession, relation: str, number: int) -> None:
    for seed in seeds_of(f"{relation} {number}"):
        draw = random.Random(seed)
        # Of equal rows, it is open which one has which of several results.
        windows = [_window(draw, number + n, relation) for n in range(3 if relation == "w" else 1)]
        columns = ", ".join(f"{text} AS w{n}" for n, text in enumerate(windows))
        with Lab(spark, f"SELECT *, {columns} FROM {relation}", _RELATIONS, strict=number % 3 == 0) as lab:
            assert all(node.reach is not None for node in walk(lab.plan) if isinstance(node, Window)), windows
            for changes in _epochs(draw, relation):
                lab.step({relation: changes})
                lab.check()


@pytest.mark.parametrize("relation", ["w", "b"])
def test_frames_on_both_sides_of_a_row_are_whole(spark: SparkSession, relation: str) -> None:
    """The rows at the end of a change's reach have frames that go beyond it."""
    over = "PARTITION BY g ORDER BY o, k, x, s"
    texts = (
        f"sum(k) OVER ({over} ROWS BETWEEN 2 PRECEDING AND 3 FOLLOWING)",
        f"lag(k, 2) OVER ({over})",
        f"lead(k) OVER ({over})",
    )
    columns = ", ".join(f"{text} AS w{n}" for n, text in enumerate(texts))
    with Lab(spark, f"SELECT *, {columns} FROM {relation}", _RELATIONS) as lab:
        assert [node.reach for node in walk(lab.plan) if isinstance(node, Window)] == [Reach(3, 2)]
        for changes in _epochs(random.Random(seeds_of(relation)[0]), relation):
            lab.step({relation: changes})
            lab.check()


@pytest.mark.parametrize(
    ("text", "reach"),
    [
        ("lag(x) OVER (ORDER BY o, k)", Reach(0, 1)),
        ("lead(x, 3) OVER (ORDER BY o, k)", Reach(3, 0)),
        ("lag(x, -2) OVER (ORDER BY o, k)", Reach(2, 0)),
        ("lag(x) IGNORE NULLS OVER (ORDER BY o, k)", Reach(0, None)),
        ("lead(x) IGNORE NULLS OVER (ORDER BY o, k)", Reach(None, 0)),
        ("row_number() OVER (ORDER BY o, k)", Reach(0, None)),
        ("rank() OVER (ORDER BY o)", Reach(0, None)),
        ("ntile(3) OVER (ORDER BY o, k)", Reach(None, None)),
        ("percent_rank() OVER (ORDER BY o)", Reach(None, None)),
        ("cume_dist() OVER (ORDER BY o)", Reach(None, None)),
        ("sum(x) OVER (ORDER BY o)", Reach(0, None, peers=True)),
        ("sum(x) OVER (ORDER BY o RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)", Reach(0, None, peers=True)),
        ("sum(x) OVER (ORDER BY o RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", Reach(None, 0, peers=True)),
        ("sum(x) OVER (ORDER BY o RANGE BETWEEN 3 PRECEDING AND 1 PRECEDING)", Reach(None, None)),
        ("sum(x) OVER (PARTITION BY g)", Reach(None, None)),
        ("sum(x) OVER (ORDER BY o, k ROWS BETWEEN 363 PRECEDING AND CURRENT ROW)", Reach(0, 363)),
        ("sum(x) OVER (ORDER BY o, k ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING)", Reach(0, 5)),
        ("sum(x) OVER (ORDER BY o, k ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING)", Reach(5, 0)),
        ("sum(x) OVER (ORDER BY o, k ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING)", Reach(None, 1)),
        ("first_value(x) OVER (ORDER BY o, k ROWS BETWEEN CURRENT ROW AND CURRENT ROW)", Reach(0, 0)),
    ],
)
def test_a_plan_says_how_far_a_change_reaches(spark: SparkSession, text: str, reach: Reach) -> None:
    with Lab(spark, f"SELECT *, {text} AS w FROM w", _RELATIONS) as lab:
        (node,) = [node for node in walk(lab.plan) if isinstance(node, Window)]
        assert node.reach == reach


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        pytest.param(((400, 0, 200, 7, None), 1), {"old": 6, "new": 7}, id="amid"),
        pytest.param(((400, 0, 400, 7, None), 1), {"new": 4}, id="appended"),
        pytest.param(((399, 0, 399, 399, None), -1), {"old": 4}, id="last one deleted"),
    ],
)
@pytest.mark.parametrize("partition", ["PARTITION BY g ", ""])
def test_a_change_in_a_long_partition_computes_few_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, partition: str, change: tuple[Row, int], rows: dict[str, int]
) -> None:
    """Of 400 rows, only those near the change, in versions where a result may change."""
    computed: list[dict[str, int]] = []
    versions = window.both_versions

    def counted(rows: DataFrame, version: str) -> DataFrame:
        found = versions(rows, version)
        if changed_windows.AFFECTED in rows.columns:
            computed.append({row[version]: row["count"] for row in found.groupBy(version).count().collect()})
        return found

    monkeypatch.setattr(window, "both_versions", counted)
    query = f"SELECT *, avg(x) OVER ({partition}ORDER BY o, k ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS smooth FROM w"
    with Lab(spark, query, _RELATIONS) as lab:
        lab.step({"w": [((n, 0, n, n, None), 1) for n in range(400)]})
        lab.step({"w": [change]})
        lab.check()
    assert computed == [rows]
