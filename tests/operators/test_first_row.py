"""The first row of each partition of rows that are only added: kept as one row a partition, not as a window."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Aggregate, Field, Window, walk
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.planning import plan_view
from relstate_dagster.state_lib.constants import ROW_ID
from tests.capabilities import need
from tests.operators.histories import seeds_of
from tests.operators.lab import Lab, Row
from tests.sizes import Resized

pytestmark = pytest.mark.spark

_ROW_ID = Field(ROW_ID, "bigint", False)
RELATIONS = {
    "e": Relation(
        "e",
        (Field("k", "int"), Field("g`h", "double"), Field("_ts", "bigint"), Field("s", "string"), Field("a", "boolean")),
        (ROW_ID,),
        True,
        (_ROW_ID,),
    ),
    "t": Relation("t", (Field("k", "int", False), Field("v", "int")), ("k",)),
    "f": Relation("f", (Field("k", "int", False), Field("g", "int"), Field("d", "double"), Field("v", "int")), ("k",)),
    "maps": Relation(
        "maps", (Field("k", "int"), Field("ts", "int"), Field("m", "map<string,int>")), (ROW_ID,), True, (_ROW_ID,)
    ),
}
# Every column is in the order, so that Spark leaves no choice among rows that tie but equal ones.
NEWEST = "ORDER BY _ts DESC, s DESC, a DESC, k DESC, `g``h` DESC"
OLDEST = "ORDER BY _ts, s, a, k, `g``h`"


def numbered(columns: str, partition: str, order: str, condition: str, *, relation: str = "e", more: str = "") -> str:
    number = f"row_number() OVER (PARTITION BY {partition} {order}) AS n{more}"
    return f"SELECT {columns} FROM (SELECT *, {number} FROM {relation}) WHERE {condition}"


KEPT = {
    "newest of a key": numbered("k, `g``h` AS g, _ts AS t, s, a", "k", NEWEST, "n = 1"),
    "oldest of a key, with its number": numbered("k, `g``h` AS g, _ts AS t, s, n", "k", OLDEST, "n < 2"),
    "of two columns, one a fraction": numbered("k, `g``h` AS g, _ts AS t", "`g``h`, k", NEWEST, "1 >= n"),
    "of two columns, the second one a fraction": numbered("k, `g``h` AS g, _ts AS t", "k, `g``h`", NEWEST, "n = 1"),
    "of expressions, and more conditions": numbered(
        "k, s", "k % 2, upper(s)", NEWEST, "n = 1 AND _ts > 1 AND k < 4", relation="(SELECT * FROM e WHERE s IS NOT NULL)"
    ),
    "without the key": numbered("s, _ts AS t", "k", NEWEST, "n <=> 1"),
    "under a join and a group": "SELECT t.v, count(*) AS n, max(x.s) AS s FROM t JOIN "
    f"({numbered('*', 'k', NEWEST, 'n = 1')}) x ON t.k = x.k GROUP BY t.v",
    "QUALIFY": f"SELECT k, s, _ts AS t FROM e QUALIFY row_number() OVER (PARTITION BY k {NEWEST}) = 1",
}
WINDOWS = {
    "second": numbered("k", "k", NEWEST, "n = 2"),
    "first two": numbered("k", "k", NEWEST, "n <= 2"),
    "first with ties": numbered("k", "k", NEWEST, "n = 1").replace("row_number", "rank"),
    "directions of two kinds": numbered("k", "k", "ORDER BY s, _ts DESC, a", "n = 1"),
    "NULL as the greatest": numbered("k", "k", "ORDER BY _ts DESC NULLS FIRST", "n = 1"),
    "one of two numbers": numbered("k, m", "k", NEWEST, "n = 1", more=f", count(*) OVER (PARTITION BY k {NEWEST}) AS m"),
    "rows that are deleted, too": numbered("k, v", "v", "ORDER BY k DESC", "n = 1", relation="t"),
    "maps, which have no order": numbered("k, m", "k", "ORDER BY ts DESC", "n = 1", relation="maps"),
    "either": numbered("k", "k", NEWEST, "n = 1 OR s = 'a'"),
}


def epochs(seed: int) -> list[Mapping[str, list[tuple[Row, int]]]]:
    draw, numbers, t, made = random.Random(seed), iter(range(1, 1000)), {}, []
    for epoch in range(4):
        added = [
            (
                (
                    draw.choice([None, 1, 2, 3, 4]),
                    draw.choice([None, 0.0, -0.0, float("nan"), 1.5]),
                    draw.choice([None, 1, 2, 3, epoch, epoch + 1]),
                    draw.choice([None, "", "a", "A", "b\x00"]),
                    draw.choice([None, True, False]),
                    next(numbers),
                ),
                1,
            )
            for _ in range(0 if epoch == 2 else draw.randint(3, 9))
        ]
        k, v = draw.randint(1, 4), draw.choice([None, 1, 2])
        changes = [((k, t[k]), -1)] if k in t else []
        t[k] = v
        made.append({"e": added, "t": [*changes, ((k, v), 1)]})
    return made


@pytest.mark.parametrize("name", KEPT)
def test_a_view_equals_its_query_after_every_epoch(spark: SparkSession, name: str, resized: Resized):
    if name == "QUALIFY":
        need(spark, "SELECT id FROM range(1) QUALIFY row_number() OVER (ORDER BY id) = 1")
    resized(whole_state_rows=0)  # so that the affected groups are looked up, by their vnodes
    for seed in seeds_of(f"first row: {name}"):
        with Lab(spark, KEPT[name], RELATIONS, strict=True) as lab:
            assert not any(isinstance(node, Window) for node in walk(lab.plan))
            for changes in epochs(seed):
                lab.step(changes)
                lab.check()


@pytest.mark.parametrize("name", WINDOWS)
def test_other_windows_stay_windows(spark: SparkSession, name: str):
    plan = plan_view(spark, WINDOWS[name], RELATIONS)
    assert any(isinstance(node, Window) for node in walk(plan))


def test_state_has_one_row_for_each_partition(spark: SparkSession):
    with Lab(spark, KEPT["newest of a key"], RELATIONS) as lab:
        (aggregate,) = (node for node in walk(lab.plan) if isinstance(node, Aggregate))
        assert ROW_ID not in aggregate.child.column_names
        lab.step({"e": [((1, None, n, "a", None, n), 1) for n in range(50)]})
        lab.step({"e": [((1, None, 7, "late", None, 51), 1)]})
        lab.check(wait=True)
        table = lab.descs[0].table_id
        assert lab._store.storage_table(table, version=lab._version).scan().count() == 1
        assert lab.changes_of_view() == 1


#: Of rows that are also deleted, and the key of the view: the partition, if equal values of it are the same.
DELETED = {
    "by its group": (numbered("g, k, v", "g", "ORDER BY v DESC, k", "n = 1", relation="f"), ("g",)),
    "by two": (numbered("k, v", "g, v", "ORDER BY k", "n = 1 AND k > 2", relation="f"), ("g", "v")),
    "by a fraction": (numbered("k, v, d", "d", "ORDER BY v DESC, k", "n = 1", relation="f"), ("k",)),
    "by the second row": (numbered("g, k, v", "g", "ORDER BY v DESC, k", "n = 2", relation="f"), ("k",)),
}


@pytest.mark.parametrize("name", DELETED)
def test_the_first_row_of_rows_that_are_deleted_is_keyed_by_its_partition(spark: SparkSession, name: str):
    query, key = DELETED[name]
    draw, rows = random.Random(name), dict[int, Row]()
    with Lab(spark, query, RELATIONS, strict=True) as lab:
        keyed = lab.plan.child
        columns = set(keyed.stream_key or ())
        assert len(columns) == len(key), f"{name}: {keyed.stream_key}"
        assert set(key) & set(keyed.column_names) <= columns
        for _ in range(4):
            changes: list[tuple[Row, int]] = []
            for k in draw.sample(range(9), 4):
                changes += [(rows.pop(k), -1)] if k in rows else []
                if draw.random() < 0.7:
                    rows[k] = (k, draw.choice([None, 1, 2]), draw.choice([None, 0.0, -0.0, 1.5]), draw.choice([None, 1, 2]))
                    changes.append((rows[k], 1))
            lab.step({"f": changes})
            lab.check()
