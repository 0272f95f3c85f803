"""Extremes and DISTINCT calls of few values a group, so that the values kept run out all the time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.plan.aggregates import extreme
from relstate_dagster.jobs.plan.nodes import Aggregate, Field
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.plan.state_tables import TableRole, accumulator_names, table_roles
from relstate_dagster.state_lib.key_rows import KeyRow
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.storage_table import StorageTable
from relstate_dagster.state_lib.table_schema import StateKind, StateTableDesc
from tests.operators.histories import seeds_of
from tests.operators.lab import Lab, Row, decimal

#: A bag of groups and values of types that compare in ways of their own.
BAG = {
    "b": Relation(
        "b",
        (
            Field("g", "int"),
            Field("x", "int"),
            Field("s", "string"),
            Field("d", "double"),
            Field("i", "interval day to second"),
            Field("l", "array<int>"),
        ),
    )
}

_NAN = float("nan")
_DOUBLES = (None, _NAN, 0.0, -0.0, 1.5, float("inf"), -2.0)


def _row(chance: random.Random) -> Row:
    x = chance.choice((None, *range(7)))
    return (
        chance.choice((None, 1, 2)),
        x,
        chance.choice((None, "", "a", "b", "a\x00b")),
        chance.choice(_DOUBLES),
        chance.choice((None, timedelta(microseconds=-1), timedelta(days=3), timedelta(0))),
        chance.choice((None, (), (1,), (1, 2), (None,))),
    )


def _history(chance: random.Random, epochs: int) -> list[list[tuple[Row, int]]]:
    """Rows that come twice and more, go in part and altogether; one epoch leaves nothing, one changes nothing on the whole."""
    bag: Counter[int] = Counter()
    rows: list[Row] = []
    history = []
    for epoch in range(epochs):
        changes: Counter[int] = Counter()
        for n, count in list(bag.items()):
            leaving = count if epoch == epochs - 2 or chance.random() < 0.4 else chance.choice((0, 0, count // 2))
            changes[n] -= leaving
        for _ in range(0 if epoch == epochs - 2 else 10):
            if rows and chance.random() < 0.4:
                changes[chance.randrange(len(rows))] += chance.choice((1, 2))
            else:
                rows.append(_row(chance))
                changes[len(rows) - 1] += chance.choice((1, 1, 2))
        bag.update(changes)
        bag = +bag
        history.append([(rows[n], weight) for n, weight in changes.items() if weight])
    return history


QUERIES = {
    "extremes": "SELECT g, min(x) AS lo, max(x) AS hi, max(s) AS hs, count(x) AS n FROM b GROUP BY g",
    "extreme alone": "SELECT max(x) AS hi FROM b GROUP BY g",
    "global": "SELECT min(x) AS lo, max(s) AS hi, count(DISTINCT x) AS n FROM b",
    "filtered": "SELECT g, min(x) FILTER (WHERE s = 'a') AS lo, max(x) FILTER (WHERE s > '') AS hi FROM b GROUP BY g",
    "by another": "SELECT g, max_by(s, struct(x, s)) AS s, min_by(x, struct(s, x)) AS x, bool_and(x > 1) AS a, "
    "bool_or(x > 5) AS o FROM (SELECT DISTINCT * EXCEPT (d, l, i) FROM b) GROUP BY g",
    "floats and arrays": "SELECT g, min(d) AS lo, max(d) AS hi, max(l) AS l, min(struct(l, d)) AS p FROM b GROUP BY g",
    "intervals": "SELECT g, CAST(min(i) AS string) AS lo, CAST(max(i) AS string) AS hi, "
    "CAST(max(make_ym_interval(0, x)) AS string) AS y FROM b GROUP BY g",
    "distinct": "SELECT g, count(DISTINCT x, s) AS n, sum(DISTINCT x) AS sx, avg(DISTINCT x) AS ax, max(x) AS hi, "
    "count(DISTINCT d) AS nd FROM b GROUP BY g",
    "beside input": "SELECT g, max(x) AS hi, count(DISTINCT s) AS n, sort_array(collect_list(x)) AS l FROM b GROUP BY g",
    "joined": "SELECT b.x, a.hi FROM b JOIN (SELECT g, max(x) AS hi, count(DISTINCT s) AS n FROM b GROUP BY g) a ON a.g = b.g",
    "of nothing": "SELECT g, max(NULL) IS NULL AS n, max(x) AS hi FROM b GROUP BY g",
}


@pytest.mark.parametrize(
    ("name", "collects"),
    [*((name, (True,)) for name in QUERIES), ("extremes", (False,)), ("distinct", (False,)), ("global", (True, False))],
)
def test_every_epoch_equals_the_query_run_in_full(spark: SparkSession, name: str, collects: tuple[bool, ...]) -> None:
    """``collects``: whether the driver holds what is shared; of several, an epoch each in turn."""
    for seed in seeds_of(name):
        chance = random.Random(seed)
        with Lab(spark, QUERIES[name], BAG, extreme_rows=chance.choice((1, 2))) as lab:
            for epoch, changes in enumerate(_history(chance, 5)):
                lab.collect_shared = collects[epoch % len(collects)]
                lab.step({"b": changes})
                lab.check()


def test_values_that_a_few_rows_left_without_counts_are_retracted_by_many(spark: SparkSession) -> None:
    """Such a group has no counts, whether or not the driver sees that."""
    with Lab(spark, "SELECT max(x) AS hi, min(x) AS lo FROM b", BAG) as lab:
        rows = [(1, n % 3, None, None, None, None) for n in range(9)]
        lab.step({"b": [(row, 4) for row in rows[:3]]})
        for row in rows[:3]:
            lab.collect_shared = False
            lab.step({"b": [(row, -2)]})
            lab.check()
            lab.collect_shared = True
            lab.step({"b": [(row, -2)]})
            lab.check()


@pytest.mark.parametrize(
    ("name", "is_earlier"),
    [("extremes", False), ("extremes", True), ("global", False), ("floats and arrays", False), ("intervals", False)],
)
def test_the_number_of_kept_values_may_change_at_any_time(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, is_earlier: bool
) -> None:
    if is_earlier:
        for kind in extreme.KINDS:
            monkeypatch.setattr(kind, "counted", replace(kind.counted, only_of_others=False))
    for seed in seeds_of(f"kept: {name}"):
        chance = random.Random(seed)
        with Lab(spark, QUERIES[name], BAG, extreme_rows=chance.choice((1, 3, 6))) as lab:
            for changes in _history(chance, 4):
                lab.step({"b": changes})
                lab.check(wait=True)
                if not is_earlier:
                    _check_counts(lab)
                lab.extreme_rows = chance.choice((1, 2, 4, 7))


def _check_counts(lab: Lab) -> None:
    """Groups have no counts, or those of all values, as their first values say."""

    def stored(desc: StateTableDesc, *names: str) -> list[tuple[Any, ...]]:
        rows = lab._store.storage_table(desc.table_id, version=lab._version).scan()
        return [tuple(row) for row in rows.select(*names, F.lit(0)).collect()]

    for planned in lab.stateful.nodes:
        if not isinstance(node := planned.node, Aggregate):
            continue
        tables = dict(zip(table_roles(node), planned.tables, strict=True))
        ((positions, of_groups),) = ((found, t) for (role, found), t in tables.items() if role is TableRole.VALUE_STATE)
        names = accumulator_names(node, positions)
        for (role, found), desc in tables.items():
            if role is TableRole.COUNTS and desc.schema.kind is StateKind.EXTREME_STATE:
                complete = names[found[0]][extreme.COMPLETE]
                incomplete = {
                    tuple(group) for is_complete, *group in stored(of_groups, complete, *node.group) if not is_complete
                }
                assert set(stored(desc, *node.group)) <= incomplete, desc.schema.label


def test_the_counts_are_read_only_where_the_kept_values_run_out(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    read = _tables_read(monkeypatch)
    with Lab(spark, "SELECT g, max(v) AS hi, min(v) AS lo, sum(v) AS s FROM t GROUP BY g", extreme_rows=2) as lab:
        counts = {d.schema.label: d.table_id for d in lab.descs if d.schema.label.startswith("values of ")}
        lab.step({"t": [((k, k % 2, "a", decimal(k)), 1) for k in range(40)]})
        quiet = [
            [((40, 0, "a", decimal(5)), 1), ((41, 1, "a", None), 1)],
            [((40, 0, "a", decimal(5)), -1), ((18, 0, "a", decimal(18)), -1)],
            [((39, 1, "a", decimal(39)), -1), ((0, 0, "a", decimal(0)), -1)],
            [((42, 1, "a", decimal(41)), 1), ((37, 1, "a", decimal(37)), -1), ((43, 0, "a", decimal(-1)), 1)],
        ]
        for changes in quiet:
            read.clear()
            lab.step({"t": changes})
            assert not read & set(counts.values()), changes
            lab.check()
        lab.step({"t": [((42, 1, "a", decimal(41)), -1)]})
        assert read & set(counts.values()) == {counts["values of max(v)"]}
        lab.check()


def test_a_group_whose_values_are_all_kept_is_never_read_again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    read = _tables_read(monkeypatch)
    with Lab(spark, "SELECT g, max(v) AS hi FROM t GROUP BY g", extreme_rows=3) as lab:
        (counts,) = [d.table_id for d in lab.descs if d.schema.label == "values of max(v)"]
        rows = [(k, 1, "a", decimal(k)) for k in range(3)]
        lab.step({"t": [(row, 1) for row in rows]})
        for leaving in reversed(rows):
            lab.step({"t": [(leaving, -1), *([((9, 1, "a", None), 1)] if leaving[0] == 2 else [])]})
            lab.check()
        lab.step({"t": [(rows[1], 1)]})
        lab.check()
        assert counts not in read


def test_fewer_rows_may_be_kept_than_before(spark: SparkSession) -> None:
    with Lab(spark, "SELECT g, max(v) AS hi FROM t GROUP BY g", extreme_rows=4) as lab:
        rows = [(k, 1, "a", decimal(k)) for k in range(8)]
        lab.step({"t": [(row, 1) for row in rows]})
        lab.extreme_rows = 1
        lab.step({"t": [(row, -1) for row in rows[5:]]})
        lab.check()
        lab.extreme_rows = 3
        lab.step({"t": [(rows[4], -1), (rows[0], -1)]})
        lab.check()


@pytest.mark.parametrize("call", ["max(s)", "count(DISTINCT s)"])
def test_a_value_that_was_retracted_without_being_there(spark: SparkSession, call: str) -> None:
    lab = Lab(spark, f"SELECT g, {call} AS r FROM m GROUP BY g")
    lab.step({"m": [((1, "a"), 2), ((1, "b"), 1)]})
    with pytest.raises(
        PySparkException, match=r"a value of .* is retracted more often than it occurs \(table_id \d+\).*--full"
    ):
        lab.step({"m": [((1, "c"), -1)]})
    lab.close()


def _tables_read(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """A set that grows: the state tables that an epoch reads."""
    found: set[int] = set()
    stored_of = StorageTable.stored_of

    def noted(
        self: StorageTable, table_ids: Sequence[int], lookup_keys: LookupKeys | None = None, key_row: KeyRow | None = None
    ) -> DataFrame:
        found.update(table_ids)
        return stored_of(self, table_ids, lookup_keys, key_row)

    monkeypatch.setattr(StorageTable, "stored_of", noted)
    return found
