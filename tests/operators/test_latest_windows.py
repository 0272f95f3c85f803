"""Windows computed from the kept last rows of partitions, compared with their queries.

Frames, functions and orders are drawn, with ties and NULLs. Changes are at the end of partitions more often than not. After
each epoch the kept rows are compared with the rows of the input.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.operators import window
from relstate_dagster.jobs.plan.latest_rows import PLACE
from relstate_dagster.jobs.plan.nodes import Field, LatestRows, Window, walk
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.state_lib.constants import WEIGHT
from tests.capabilities import need
from tests.operators.histories import seeds_of
from tests.operators.lab import Lab, Row
from tests.sizes import Resized


@pytest.fixture(autouse=True)
def _keeps_rows_of_any_input(resized: Resized) -> None:
    resized(whole_state_rows=0)


_COLUMNS = (
    Field("k", "int", False),
    Field("g", "int"),
    Field("o", "int"),
    Field("x", "int"),
    Field("d", "double"),
    Field("c", "decimal(9,2)"),
)
_RELATIONS = {"w": Relation("w", _COLUMNS, ("k",)), "b": Relation("b", _COLUMNS)}
#: NULLs as sorted, of each order that is drawn.
_ORDERS = {"ASC NULLS FIRST": (1, -1), "ASC NULLS LAST": (1, 1), "DESC NULLS FIRST": (-1, -1), "DESC NULLS LAST": (-1, 1)}
_RUNNING = ("sum(x)", "sum(d)", "sum(c)", "count(*)", "count(x, d)", "min(x)", "max(d)", "avg(x)", "avg(d)", "avg(c)")
_VALUES = ("first_value(x)", "first_value(d) IGNORE NULLS", "last_value(x) IGNORE NULLS", "last_value(c)")
_OF_TIES = ("rank()", "dense_rank()", "row_number()")
_NEAR = ("sum(d)", "avg(c)", "min(x)", "count(*)", "collect_list(x)", "nth_value(x, 2)")


def _call(draw: random.Random, total: str, ties: str) -> str:
    """One function; those of rows have a total order."""
    kind = draw.choice(["running", "running", "peers", "peers", "values", "ranks", "near", "offset"])
    if kind == "running":
        to = draw.choice(["CURRENT ROW", "CURRENT ROW", "1 FOLLOWING", "1 PRECEDING", "2 PRECEDING"])
        return f"{draw.choice(_RUNNING)} OVER ({total} ROWS BETWEEN UNBOUNDED PRECEDING AND {to})"
    if kind == "peers":
        # Of equal rows, Spark may add up the doubles in any order.
        return f"{draw.choice([text for text in _RUNNING if '(d)' not in text or 'max' in text])} OVER ({ties})"
    if kind == "values":
        return f"{draw.choice(_VALUES)} OVER ({total})"
    if kind == "ranks":
        text = draw.choice(_OF_TIES)
        return f"{text} OVER ({total if text == 'row_number()' else ties})"
    if kind == "offset":
        return f"{draw.choice(['lag', 'lead'])}(x, {draw.randint(1, 2)}) OVER ({total})"
    frame = draw.choice(["2 PRECEDING AND CURRENT ROW", "1 PRECEDING AND 1 FOLLOWING", "3 PRECEDING AND 1 PRECEDING"])
    return f"{draw.choice(_NEAR)} OVER ({total} ROWS BETWEEN {frame})"


def _row(draw: random.Random, key: int, order: int | None) -> Row:
    double = draw.choice([None, 0.1, 0.2, -0.0, 1e16, 3.3])
    return (key, draw.choice([0, 0, 1, None]), order, draw.choice([None, draw.randint(-9, 9)]), double, None)


def _epochs(draw: random.Random, relation: str) -> Iterator[list[tuple[Row, int]]]:
    """Rows, then changes, mostly at either end of a partition."""
    rows: dict[int, tuple[Row, int]] = {}
    for key in range(24):
        order = draw.choice([None, key // 2, key // 2, key // 2])
        rows[key] = _row(draw, key, order), draw.choice([1, 1, 2]) if relation == "b" else 1
    yield list(rows.values())
    for epoch in range(4):
        changes: dict[Row, int] = {}
        for _ in range(draw.randint(1, 3)):
            place = draw.choice(["high", "high", "low", "low", "middle", "null", "gone", "gone"])
            if place == "gone":
                at = draw.choice([*sorted(rows)[-3:], *sorted(rows)[:3], draw.choice(sorted(rows))])
                old, copies = rows.pop(at)
                changes[old] = changes.get(old, 0) - copies
                continue
            key = 100 * epoch + len(changes) + 50
            order = {"high": 20 + 5 * epoch, "low": -5 * epoch, "middle": draw.randint(0, 12), "null": None}[place]
            row = _row(draw, key, order)
            changes[row] = changes.get(row, 0) + 1
            rows[key] = row, 1
        yield [(row, weight) for row, weight in changes.items() if weight]


@pytest.mark.parametrize(("number", "rows"), [(0, 1), (1, 0), (2, 2), (3, 1)])
@pytest.mark.parametrize("relation", ["w", "b"])
def test_drawn_windows_equal_the_query(spark: SparkSession, resized: Resized, relation: str, number: int, rows: int) -> None:
    if number % 2:
        resized(slid_frame_rows=1, single_results=6)
    for seed in seeds_of(f"{relation} {number} {rows}"):
        draw = random.Random(seed)
        order = list(_ORDERS)[number]
        partition = "PARTITION BY g " if draw.random() < 0.8 else ""
        ties = f"{partition}ORDER BY o {order}"
        total = f"{ties}, k, x, d" if relation == "b" else f"{ties}, k"
        # Of equal rows, it is open which one has which of several results.
        calls = [_call(draw, total, ties) for _ in range(2 if relation == "w" else 1)]
        columns = ", ".join(f"{text} AS w{n}" for n, text in enumerate(calls))
        with Lab(spark, f"SELECT *, {columns} FROM {relation}", _RELATIONS, strict=number == 0, window_rows=rows) as lab:
            nodes = [node for node in walk(lab.plan) if isinstance(node, Window)]
            assert all(node.latest is not None for node in nodes), calls
            for changes in _epochs(draw, relation):
                if changes:
                    lab.step({relation: changes})
                    lab.check()
                    for node in nodes:
                        _check_kept_rows(lab, relation, node)


def _check_kept_rows(lab: Lab, relation: str, node: Window) -> None:
    """The last rows of each partition are kept, and the carrier before them."""
    latest = node.latest
    assert latest is not None
    numbers = {found.node: found.tables for found in lab.stateful.nodes}[node]
    stored = next(f for name, f in lab.stored().items() if name.startswith(f"{numbers[1].table_id} "))
    names = [f.name for f in _COLUMNS]
    kept: dict[Any, list[Row]] = {}
    carriers: dict[Any, tuple[Row, int]] = {}
    for found in stored.collect():
        row, partition = tuple(found[name] for name in names), found["g"] if node.partition else None
        if found[PLACE] is None:
            kept.setdefault(partition, []).extend([row] * found[WEIGHT])
        else:
            assert (found[WEIGHT], partition in carriers) == (1, False)
            carriers[partition] = row, found[PLACE]
    partitions: dict[Any, list[Row]] = {}
    for row, copies in lab.bags[relation].items():
        partitions.setdefault(row[1] if node.partition else None, []).extend([row] * copies)
    for partition, rows in partitions.items():
        in_order = sorted(rows, key=lambda row: _sort_key(node, row))
        place = 0
        if partition in carriers:
            carrier, place = carriers[partition]
            assert repr(in_order[place - 1]) == repr(carrier), (partition, place)
        assert sorted(map(repr, in_order[place:])) == sorted(map(repr, kept.get(partition, []))), (partition, place)
        assert len(rows) - place <= latest.margin + 2 * lab.window_rows
    assert {*kept, *carriers} <= {partition for partition, rows in partitions.items() if rows}


def _sort_key(node: Window, row: Row) -> list[tuple[int, Any]]:
    """The total order of a node's rows."""
    values = {f.name: value for f, value in zip(_COLUMNS, row, strict=True)}
    given = {key.column for key in node.order}
    keys = [(values[k.column], k.descending, k.nulls_last) for k in node.order]
    keys += [(values[f.name], False, False) for f in _COLUMNS if f.name not in given]
    return [
        ((1 if nulls_last else -1), 0) if value is None else (0, -value if descending else value)
        for value, descending, nulls_last in keys
    ]


@pytest.fixture
def partitions_in_full(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each epoch reads of partitions whose kept rows are not enough."""
    read: list[int] = []
    rows_of = window._rows_of

    def counted(*arguments: Any) -> DataFrame:
        rows = rows_of(*arguments)
        read.append(rows.count())
        return rows

    monkeypatch.setattr(window, "_rows_of", counted)
    return read


_OVER = "PARTITION BY g ORDER BY o, k"


def _line(key: int, partition: int, order: int) -> Row:
    return (key, partition, order, key % 7, key * 0.1, None)


@pytest.mark.parametrize(
    ("text", "out"),
    [
        (f"sum(d) OVER ({_OVER})", []),
        (f"max(x) OVER ({_OVER} ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)", []),
        (f"lead(x) OVER ({_OVER})", []),
    ],
)
def test_changes_at_the_end_read_kept_rows_alone(
    spark: SparkSession, partitions_in_full: list[int], text: str, out: list[int]
) -> None:
    with Lab(spark, f"SELECT *, {text} AS s FROM w", _RELATIONS, window_rows=3) as lab:
        lab.step({"w": [(_line(n, n % 2, n), 1) for n in range(60)]})
        partitions_in_full.clear()
        for n in range(60, 68):
            lab.step({"w": [(_line(n, n % 2, n), 1)]})
            lab.check()
        lab.step({"w": [(_line(67, 1, 67), -1), (_line(67, 1, 66), 1)]})
        lab.check()
        assert partitions_in_full == out


def test_of_several_partitions_those_changed_in_the_middle_are_read(spark: SparkSession, partitions_in_full: list[int]) -> None:
    """One of 30 rows is read whole; afterwards its kept rows are enough again."""
    with Lab(spark, f"SELECT *, sum(d) OVER ({_OVER}) AS s FROM w", _RELATIONS, window_rows=2) as lab:
        lab.step({"w": [(_line(n, n % 2, n), 1) for n in range(60)]})
        partitions_in_full.clear()
        lab.step({"w": [(_line(60, 0, 60), 1), (_line(61, 1, 5), 1)]})
        lab.check()
        assert partitions_in_full == [31]
        lab.step({"w": [(_line(62, 0, 62), 1), (_line(63, 1, 63), 1)]})
        lab.check()
        assert partitions_in_full == [31]


@pytest.mark.parametrize("relation", ["w", "b"])
def test_long_frames_are_computed_for_changed_rows_alone(
    spark: SparkSession, resized: Resized, partitions_in_full: list[int], relation: str
) -> None:
    """Long frames beside running values; partitions with many changes are read in full."""
    resized(slid_frame_rows=2, single_results=4)
    over = "PARTITION BY g ORDER BY o, k, x, d"
    frame = f"({over} ROWS BETWEEN 4 PRECEDING AND 1 FOLLOWING)"
    texts = (f"sum(d) OVER {frame}", f"count(x, d) OVER {frame}", f"max(x) OVER {frame}", f"sum(d) OVER ({over})")
    columns = ", ".join(f"{text} AS s{n}" for n, text in enumerate(texts))
    with Lab(spark, f"SELECT *, {columns} FROM {relation}", _RELATIONS, window_rows=1) as lab:
        assert [bool(node.latest and node.latest.one_by_one) for node in walk(lab.plan) if isinstance(node, Window)] == [True]
        copies = 2 if relation == "b" else 1
        lab.step({relation: [(_line(n, n % 2, n), 1) for n in range(40)]})
        partitions_in_full.clear()
        for n in (40, 41, 42, 43, 44):
            lab.step({relation: [(_line(n, n % 2, n), copies)]})
            lab.check()
        lab.step({relation: [(_line(44, 0, 44), -1)]})
        lab.check()
        assert bool(partitions_in_full) == (relation == "b")
        lab.step({relation: [(_line(n, 0, n), 1) for n in range(50, 56)] + [(_line(60, 1, 60), 1), (_line(61, 7, 1), 1)]})
        lab.check()
        assert partitions_in_full


def test_deletes_of_more_rows_than_are_kept(spark: SparkSession, partitions_in_full: list[int]) -> None:
    text = f"avg(d) OVER ({_OVER} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
    with Lab(spark, f"SELECT *, {text} AS s FROM w", _RELATIONS, window_rows=1) as lab:
        lab.step({"w": [(_line(n, 0, n), 1) for n in range(20)]})
        partitions_in_full.clear()
        lab.step({"w": [(_line(n, 0, n), -1) for n in range(17, 20)]})
        lab.check()
        lab.step({"w": [(_line(n, 0, n), 1) for n in range(30, 32)]})
        lab.check()
        assert partitions_in_full  # the carrier alone was left
        lab.step({"w": [(_line(n, 0, n), -1) for n in (*range(17), 30, 31)]})
        lab.check()
        lab.step({"w": [(_line(40, 0, 40), 1)]})
        lab.check()


@pytest.mark.parametrize("partition", ["PARTITION BY g ", ""])
def test_rows_are_kept_once_the_input_has_grown(
    spark: SparkSession, resized: Resized, partitions_in_full: list[int], partition: str
) -> None:
    """A small input has no latest rows. They are taken once it has grown."""
    resized(whole_state_rows=30)
    text = f"sum(d) OVER ({partition}ORDER BY o, k)"
    with Lab(spark, f"SELECT *, {text} AS s FROM w", _RELATIONS, window_rows=2) as lab:
        (node,) = [node for node in walk(lab.plan) if isinstance(node, Window)]
        number = next(found.tables for found in lab.stateful.nodes if found.node is node)[1].table_id

        def kept() -> int:
            return next(frame.count() for name, frame in lab.stored().items() if name.startswith(f"{number} "))

        lab.step({"w": [(_line(n, n % 3, n), 1) for n in range(12)]})
        for n in (12, 3):
            lab.step({"w": [(_line(20 + n, n % 3, n), 1)]})
            lab.check()
        assert kept() == 0
        partitions_in_full.clear()
        for n in (40, 41):
            lab.step({"w": [(_line(k, 0, k), 1) for k in range(n * 100, n * 100 + 15)]})
            lab.check()
        assert kept() > 0
        _check_kept_rows(lab, "w", node)
        assert partitions_in_full == [21 if partition else 29]
        partitions_in_full.clear()
        lab.step({"w": [(_line(9000 + n, n, 9000), 1) for n in range(3)]})
        lab.check()
        assert partitions_in_full == []
        lab.step({"w": [(_line(k, 0, k), -1) for k in range(4000, 4015)]})
        lab.check()
        _check_kept_rows(lab, "w", node)


def test_the_number_of_kept_rows_may_change(spark: SparkSession) -> None:
    with Lab(spark, f"SELECT *, sum(d) OVER ({_OVER}) AS s FROM w", _RELATIONS, window_rows=0) as lab:
        (node,) = [node for node in walk(lab.plan) if isinstance(node, Window)]
        lab.step({"w": [(_line(n, n % 2, n), 1) for n in range(10)]})
        for rows, key in ((3, 10), (3, 12), (0, 14), (1, 3)):
            lab.window_rows = rows
            changes = [(_line(key, key % 2, key), 1), (_line(key + 1, (key + 1) % 2, key + 1), 1)]
            lab.step({"w": [(_line(100 + row[0], *row[1:3]), n) for row, n in changes]})
            lab.check()
            _check_kept_rows(lab, "w", node)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"sum(x) OVER ({_OVER})", (0, 0)),
        (f"avg(x) OVER ({_OVER} ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)", (4, 4)),
        (f"avg(x) OVER ({_OVER} ROWS BETWEEN 4 PRECEDING AND 2 FOLLOWING)", (4, 6)),
        (f"sum(x) OVER ({_OVER} ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING)", (0, 2)),
        (f"sum(x) OVER ({_OVER} ROWS BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING)", (3, 3)),
        (f"lag(x, 3) OVER ({_OVER})", (3, 3)),
        (f"lead(x) OVER ({_OVER})", (0, 1)),
        (f"row_number() OVER ({_OVER})", (0, 0)),
        (f"sum(x) OVER ({_OVER} ROWS BETWEEN 1001 PRECEDING AND CURRENT ROW)", None),
        (f"sum(x) OVER ({_OVER} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", None),
        ("sum(x) OVER (PARTITION BY g)", None),
        ("sum(x) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 3 PRECEDING AND CURRENT ROW)", None),
        (f"lag(x) IGNORE NULLS OVER ({_OVER})", None),
        (f"collect_list(x) OVER ({_OVER})", None),
        (f"sum(x) FILTER (WHERE k > 1) OVER ({_OVER})", None),
        (f"ntile(2) OVER ({_OVER})", None),
        (f"try_sum(x) OVER ({_OVER})", None),
        (f"stddev(d) OVER ({_OVER})", None),
    ],
)
def test_a_plan_says_which_rows_are_kept(spark: SparkSession, text: str, kept: tuple[int, int] | None) -> None:
    if "FILTER" in text:
        need(spark, "SELECT count(*) FILTER (WHERE id > 1) OVER () FROM range(3)")
    with Lab(spark, f"SELECT *, {text} AS s FROM w", _RELATIONS) as lab:
        (node,) = [node for node in walk(lab.plan) if isinstance(node, Window)]
        found = node.latest
        assert (None if found is None else (found.before, found.margin)) == kept
        assert found is None or isinstance(found, LatestRows)
