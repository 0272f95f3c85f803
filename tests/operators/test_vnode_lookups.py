"""State that is looked up by the vnodes of its keys, while these double from epoch to epoch: views stay equal to their queries.

No key is NULL here, and no state is so small that it is read whole: either way, vnodes would not be asked for.
"""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from tests.operators.histories import seeds_of
from tests.operators.lab import Lab
from tests.sizes import Resized

pytestmark = pytest.mark.spark

_COLUMNS = {
    "k": "int",
    "g": "bigint",
    "s": "string",
    "d": "date",
    "f": "double",
    "p": "decimal(20,3)",
    "ts": "timestamp",
    "b": "binary",
    "v": "int",
}
RELATIONS = {"x": Relation("x", tuple(Field(name, t, name != "k") for name, t in _COLUMNS.items()), ("k",))}

QUERIES = {
    "groups of a number": "SELECT g, count(*) AS n, sum(v) AS s FROM x GROUP BY g",
    "groups of a text": "SELECT s, max(v) AS m FROM x GROUP BY s",
    "groups of several types": "SELECT g, f, p, ts, b, count(*) AS n FROM x GROUP BY g, f, p, ts, b",
    "distinct calls": "SELECT d, count(DISTINCT v) AS n, max_by(g, v) AS m FROM x GROUP BY d",
    "windows": "SELECT k, sum(v) OVER (PARTITION BY p, d) AS s FROM x",
    "groups that are joined": "SELECT a.g, a.n, b.m FROM (SELECT g, count(*) AS n FROM x GROUP BY g) a LEFT JOIN "
    "(SELECT v, count(*) AS m FROM x GROUP BY v) b ON a.n = b.v",
}


@pytest.mark.parametrize("name", QUERIES)
def test_every_epoch_equals_the_query(spark: SparkSession, resized: Resized, name: str) -> None:
    resized(whole_state_rows=0)
    for seed in seeds_of(f"vnodes: {name}"):
        draw, held = random.Random(seed), dict[int, tuple[object, ...]]()
        with Lab(spark, QUERIES[name], RELATIONS) as lab:
            for epoch in range(5):
                changes = []
                for k in draw.sample(range(24), 24 if epoch == 0 else 9):
                    old = held.pop(k, None)
                    if old is not None:
                        changes.append((old, -1))
                    if old is None or draw.random() < 0.7:
                        n = draw.randint(0, 11)
                        held[k] = (
                            k,
                            n * 1_000_003,
                            f"s{n}\x00é",
                            date(2020, 1, 1) + timedelta(days=n),
                            [0.0, -0.0, float("nan"), 1.5][n % 4],
                            Decimal(n) / 8,
                            datetime(2020, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=n),
                            bytes([n, 0]),
                            draw.randint(1, 3),
                        )
                        changes.append((held[k], 1))
                lab.step({"x": changes})
                lab.check()
