"""The first rows by an order, kept in state: rows that come among them, leave them, and are missed when none is spare."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.operators import top_n
from tests.operators.lab import Lab, Row, decimal

_Changes = list[tuple[Row, int]]


def _keyed_history(chance: random.Random, epochs: int) -> list[_Changes]:
    """Rows of ``t``: deletions mostly among the largest values, now and then of all rows but one."""
    rows: dict[int, Row] = {}
    history = []
    for epoch in range(epochs):
        changes: Counter[Row] = Counter()
        by_value = sorted(rows.values(), key=lambda row: (row[3] is not None, row[3]), reverse=True)
        leaving = by_value[: chance.choice((0, 1, 2, 6))] if epoch != epochs - 3 else by_value[1:]
        for row in leaving:
            changes[rows.pop(row[0])] -= 1
        for _ in range(chance.choice((0, 2, 8)) if epoch else 12):
            key = chance.randrange(40)
            if key in rows:
                changes[rows[key]] -= 1
            rows[key] = (
                key,
                chance.choice((None, 1, 2)),
                chance.choice((None, "a", "b")),
                decimal(chance.choice((None, 5, 7, 9))),
            )
            changes[rows[key]] += 1
        history.append([(row, n) for row, n in changes.items() if n])
    return history


def _bag_history(chance: random.Random, epochs: int) -> list[_Changes]:
    """Rows of ``m``, many of them more than once; all with the first text vanish together."""
    bag: Counter[Row] = Counter()
    history = []
    for epoch in range(epochs):
        changes: Counter[Row] = Counter({row: -n for row, n in bag.items() if epoch == epochs // 2 and row[1] == "a"})
        bag += changes
        for _ in range(0 if epoch == epochs // 2 else 8):
            row = (chance.choice((None, 1, 2, 3)), chance.choice((None, "a", "b")))
            n = -bag[row] if chance.random() < 0.4 else chance.choice((1, 2))
            bag[row] += n
            changes[row] += n
        history.append([(row, n) for row, n in changes.items() if n])
    return history


@pytest.mark.parametrize(
    ("query", "spare"),
    [
        ("SELECT k, v FROM t ORDER BY v DESC NULLS LAST, k LIMIT 3", 0),
        ("SELECT k, g, s FROM t ORDER BY g, s DESC, v NULLS LAST, k DESC LIMIT 2 OFFSET 2", 3),
        ("SELECT g, s FROM m ORDER BY s NULLS LAST, g LIMIT 4", 0),
    ],
)
def test_the_first_rows_after_every_epoch(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, query: str, spare: int) -> None:
    refills = []
    stored = top_n._stored
    monkeypatch.setattr(top_n, "_stored", lambda table, node: refills.append(table.desc.schema.label) or stored(table, node))
    chance = random.Random(7)
    relation, make = ("m", _bag_history) if " m " in query else ("t", _keyed_history)
    with Lab(spark, query, spare_rows=spare) as lab:
        for changes in make(chance, 8):
            lab.step({relation: changes})
            lab.check()
    assert 0 < refills.count("input") < refills.count("first"), "some epochs are to read the whole input, others not"


def test_changes_behind_the_first_rows_read_nothing_else(spark: SparkSession) -> None:
    with Lab(spark, "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 1", spare_rows=1) as lab:
        lab.step({"t": [((k, 1, "a", decimal(k)), 1) for k in range(6)]})
        lab.check()
        view = lab._version
        lab.step({"t": [((2, 1, "a", decimal(2)), -1), ((7, 1, "a", decimal(1)), 1)]})
        lab.check()
        written = lab._store.stored([d.table_id for d in lab.descs if d.schema.label != "input"], lab._version)
        assert written.where(f"epoch = {lab.epoch}").count() == 0
        assert lab._version == view + 1


def test_a_change_too_large_for_the_driver(spark: SparkSession) -> None:
    with Lab(spark, "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 2", collect_shared=False) as lab:
        lab.step({"t": [((k, 1, "a", decimal(k)), 1) for k in range(6)]})
        lab.check()
        lab.step({"t": [((5, 1, "a", decimal(5)), -1), ((7, 1, "a", decimal(9)), 1), ((8, 1, "a", decimal(0)), 1)]})
        lab.check()


#: Orders, and the place of a row in them.
_ORDERS = {
    "descending, NULLs last": ("v DESC NULLS LAST, k", lambda row: (row[3] is None, -(row[3] or 0), row[0])),
    "ascending, NULLs first": ("v, k DESC", lambda row: (row[3] is not None, row[3] or 0, -row[0])),
    "text": ("s DESC NULLS LAST, k", lambda row: (-int(row[2]), row[0])),
    "whole numbers": ("g NULLS LAST, k", lambda row: (row[1] is None, row[1] or 0, row[0])),
}


@pytest.mark.parametrize("name", _ORDERS)
def test_a_refill_reads_the_input_up_to_a_fence(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The first refill reads all rows; later ones those before a fence, until those are gone."""
    order, place = _ORDERS[name]
    fences: list[int] = []
    before = top_n._before_fences
    monkeypatch.setattr(top_n, "_before_fences", lambda *args: fences.append(len(before(*args))) or before(*args))
    rows = [(n, None if n % 100 == 0 else n, f"{n:04}", None if n % 40 == 3 else decimal(n)) for n in range(400)]
    first = sorted(rows, key=place)
    with Lab(spark, f"SELECT k, v, s, g FROM t ORDER BY {order} LIMIT 2", spare_rows=2) as lab:
        lab.step({"t": [(row, 1) for row in rows]})
        for epoch in range(4):
            lab.step({"t": [(row, -1) for row in first[epoch * 6 : epoch * 6 + 6]]})
            lab.check()
        # The values at two places, 8 and 64 times as many rows as are kept: 4.
        assert fences == [0, 2, 2, 2]
        # All that is before both of them.
        lab.step({"t": [(row, -1) for row in first[24:300]]})
        lab.check()
        assert len(fences) == 5


def test_fences_that_lie_behind_where_rows_are_now(spark: SparkSession) -> None:
    """New rows have come before the old ones; none of the fences is right any more, and all results are."""
    with Lab(spark, "SELECT k, v FROM t ORDER BY v, k LIMIT 1", spare_rows=1) as lab:
        rows = [(n, 1, "a", decimal(n)) for n in range(200)]
        lab.step({"t": [(row, 1) for row in rows]})
        lab.step({"t": [(row, -1) for row in rows[:3]]})
        lab.check()
        earlier = [(1000 + n, 1, "a", decimal(-500 + n)) for n in range(200)]
        lab.step({"t": [(row, 1) for row in earlier]})
        lab.check()
        lab.step({"t": [(row, -1) for row in earlier[:50]]})
        lab.check()
        lab.step({"t": [(row, -1) for row in (*earlier[50:], *rows[3:190])]})
        lab.check()


def test_no_rows_are_asked_for(spark: SparkSession) -> None:
    with Lab(spark, "SELECT k, v FROM t ORDER BY v, k LIMIT 0 OFFSET 0", spare_rows=0) as lab:
        for change in (1, -1):
            lab.step({"t": [((k, 1, "a", decimal(k)), change) for k in range(3)]})
            lab.check()


def test_a_fence_is_at_equal_rows_and_copies(spark: SparkSession) -> None:
    """All of the first rows tie at a fence, and lie there more than once each."""
    rows = [(n // 30, f"{n % 30:02}") for n in range(120)]
    with Lab(spark, "SELECT g, s FROM m ORDER BY g LIMIT 2", spare_rows=1) as lab:
        lab.step({"m": [(row, 2) for row in rows]})
        for epoch in range(14):
            lab.step({"m": [(row, -2) for row in rows[epoch * 8 : epoch * 8 + 8]]})
            lab.check()


@pytest.mark.parametrize("spare", [0, 2])
def test_a_limit_without_an_order_has_rows_of_the_input_as_many_as_there_are(spark: SparkSession, spare: int) -> None:
    rows: set[int] = set()
    with Lab(spark, "SELECT k, s FROM t LIMIT 3", spare_rows=spare) as lab:
        for came, gone in (
            ({1}, ()),
            ({2, 3, 4, 5, 6, 7}, ()),
            ((), {1, 2, 3}),
            ((), {4, 5}),
            ((), {6, 7}),
            ({8, 9}, ()),
            ((), {8}),
        ):
            lab.step({"t": [((k, 1, "a", None), 1) for k in came] + [((k, 1, "a", None), -1) for k in gone]})
            rows = (rows | set(came)) - set(gone)
            found = [tuple(row) for row in lab.view().collect()]
            assert len(found) == len(set(found)) == min(3, len(rows)), (found, rows)
            assert set(found) <= {(k, "a") for k in rows}
