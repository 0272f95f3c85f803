"""First values of groups, by an aggregate and by ranks."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.spark_versions import first_values as module
from relstate_dagster.jobs.engine.spark_versions.first_values import FirstValues, first_values
from tests.capabilities import need
from tests.operators.histories import seeds_of

_ROWS = "g INT, side INT, a INT, b STRING, n BIGINT"


@pytest.mark.parametrize("is_new", [True, False])
def test_the_first_values_of_several_columns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_new: bool) -> None:
    if is_new:
        need(spark, "SELECT min_by(id, id, 2) FROM range(3)")
    chance = random.Random(seeds_of("first values")[0])
    # Of side 0 and 1 the values are in column a, of side 2 in column b; no value twice in a group and side.
    rows = [
        (g, side, a if side < 2 else None, f"b{a:02}" if side == 2 else None, chance.randrange(1, 9))
        for g in (None, 1, 2, 3)
        for side in range(3)
        for a in chance.sample(range(40), chance.randrange(0, 12))
    ]
    wanted = {
        "least": FirstValues("a", "struct(a AS value, n AS count)", "side = 0", 3, descending=False),
        "greatest": FirstValues("a", "struct(a AS value, n AS count)", "side = 1", 5, descending=True),
        "also_least": FirstValues("a", "struct(a AS value, n AS count)", "side = 1", 2, descending=False),
        "last": FirstValues("b", "struct(b AS value, n AS count)", "side = 2", 4, descending=True),
    }
    monkeypatch.setattr(module, "is_since", lambda *_: is_new)
    found = first_values(spark.createDataFrame(rows, _ROWS), ["g"], wanted).collect()
    for row in found:
        for name, (value, _, of_side, most, descending) in wanted.items():
            column = 2 if value == "a" else 3
            of_group = [(r[column], r[4]) for r in rows if r[0] == row["g"] and f"side = {r[1]}" == of_side]
            expected = sorted(of_group, reverse=descending)[:most]
            assert [tuple(pair) for pair in row[name] or ()] == expected, (row["g"], name)
    assert {row["g"] for row in found} == {row[0] for row in rows}
