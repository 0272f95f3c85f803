"""Full joins of aggregates whose groups may be NULL: which side is there tells rows apart whose keys are all NULL."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Join, walk
from relstate_dagster.jobs.planner.planning import plan_view
from tests.epoch.scripts import Script
from tests.operators.histories import Source, epochs_of, seeds_of
from tests.operators.lab import RELATIONS, Lab, decimal

_A = "(SELECT g, count(*) AS n FROM t GROUP BY g) a"
_B = "(SELECT g, sum(w) AS w FROM r GROUP BY g) b"
_C = "(SELECT g, max(s) AS s FROM m GROUP BY g) c"

#: Queries, and how many of their full joins have sides whose keys may both be NULL.
_QUERIES = {
    "equal groups": (f"SELECT a.g, a.n, b.g AS bg, b.w FROM {_A} FULL JOIN {_B} ON a.g = b.g", 1),
    "the same group once": (f"SELECT coalesce(a.g, b.g) AS g, n, w FROM {_A} FULL JOIN {_B} ON a.g = b.g", 1),
    "NULL equals NULL": (f"SELECT a.g, b.w FROM {_A} FULL JOIN {_B} ON a.g <=> b.g", 1),
    "by what is no group": (f"SELECT a.g, b.g AS bg FROM {_A} FULL JOIN {_B} ON a.n = b.w", 1),
    "with a condition": (f"SELECT a.n, b.w FROM {_A} FULL JOIN {_B} ON a.g = b.g AND a.n < b.w", 1),
    "without equality": (f"SELECT a.n, b.w FROM {_A} FULL JOIN {_B} ON a.n < b.w", 1),
    "three of them": (f"SELECT n, w, s FROM {_A} FULL JOIN {_B} ON a.g = b.g FULL JOIN {_C} ON c.g = b.g", 2),
    "two columns": (
        "SELECT a.s, b.s AS bs, n, x FROM (SELECT g, s, count(*) AS n FROM t GROUP BY g, s) a "
        "FULL JOIN (SELECT g, s, count(*) AS x FROM m GROUP BY g, s) b ON a.g = b.g AND a.s = b.s",
        1,
    ),
    "a left join below": (
        f"SELECT a.n, q.w FROM {_A} FULL JOIN (SELECT b.g, b.w, t.k FROM {_B} LEFT JOIN t ON t.k = b.g) q ON q.g = a.g",
        1,
    ),
    "a right join above": (
        f"SELECT t.k, n, w FROM (SELECT a.g, n, w FROM {_A} FULL JOIN {_B} ON a.g = b.g) q RIGHT JOIN t ON q.g = t.g",
        1,
    ),
    "a group over it": (f"SELECT n, count(*) AS rows FROM {_A} FULL JOIN {_B} ON a.g = b.g GROUP BY n", 1),
    "a window over it": (f"SELECT n, w, rank() OVER (ORDER BY n) AS place FROM {_A} FULL JOIN {_B} ON a.g = b.g", 1),
    "one side has a key": (f"SELECT a.n, t.k FROM {_A} FULL JOIN t ON a.g = t.g", 0),
}


def _drawn(seed: int) -> list[list[tuple]]:
    """Epochs in which the NULL group comes and goes on either side, mostly beside others."""
    draw = random.Random(seed)
    groups = [None, None, 1, 2]

    def operation(first: bool) -> tuple:
        name = draw.choice("trm")
        if name == "m":
            return "m", draw.random() < 0.5, (draw.choice(groups), draw.choice([None, "a", "b"]))
        gone = not first and draw.random() < 0.6
        rest = (draw.choice([None, "a", "b"]), decimal(draw.randint(0, 9))) if name == "t" else (draw.choice([None, 1, 2, 3]),)
        return name, draw.randint(0, 3), None if gone else (draw.choice(groups), *rest)

    return [[operation(epoch == 0) for _ in range(8)] for epoch in range(4)]


@pytest.mark.parametrize("name", _QUERIES)
def test_every_epoch_equals_the_query(spark: SparkSession, name: str) -> None:
    for seed in seeds_of(name):
        with Lab(spark, _QUERIES[name][0]) as lab:
            for changes in epochs_of(_drawn(seed), Source()):
                lab.step(changes)
                lab.check()


@pytest.mark.parametrize("name", _QUERIES)
def test_which_side_is_there_is_part_of_the_key(spark: SparkSession, name: str) -> None:
    query, expected = _QUERIES[name]
    plan = plan_view(spark, query, RELATIONS)
    full = [node for node in walk(plan) if isinstance(node, Join) and node.join_type == "full outer"]
    marks = [join.left_there for join in full if join.left_there is not None]
    assert len(marks) == len(set(marks)) == expected
    assert all(join.left_there in (join.stream_key or ()) for join in full if join.left_there is not None)


def test_views_over_a_full_join_of_groups(spark: SparkSession, tmp_path: Path) -> None:
    """The view's rows of the NULL groups are two rows to those who read it, too."""
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        """
        CREATE TABLE x (k INT, g INT, PRIMARY KEY (k));
        CREATE TABLE y (k INT, g INT, PRIMARY KEY (k));
        INSERT INTO x VALUES (1, NULL), (2, 1);
        INSERT INTO y VALUES (1, NULL), (2, 2);
        CREATE MATERIALIZED VIEW xs AS SELECT g, count(*) AS n FROM x GROUP BY g;
        CREATE MATERIALIZED VIEW ys AS SELECT g, count(*) AS m FROM y GROUP BY g;
        CREATE MATERIALIZED VIEW both AS SELECT xs.g, n, ys.g AS yg, m FROM xs FULL JOIN ys ON xs.g = ys.g;
        CREATE MATERIALIZED VIEW shown AS SELECT n, m FROM both;
        CREATE MATERIALIZED VIEW counted AS SELECT g, count(n) AS ns, count(m) AS ms FROM both GROUP BY g;
        """
    )
    assert script.rows("SELECT * FROM both") == [(1, 1, None, None), (None, 1, None, None), (None, None, 2, 1),
                                                (None, None, None, 1)]  # fmt: skip
    for change in (
        "INSERT INTO x VALUES (3, NULL); DELETE FROM y WHERE k = 1",
        "DELETE FROM x WHERE g IS NULL; INSERT INTO y VALUES (1, NULL), (4, NULL)",
        "UPDATE y SET g = 1; UPDATE x SET g = NULL",
        "UPDATE x SET g = 1 WHERE k = 2; DELETE FROM y",
    ):
        script.run(f"{change}; REFRESH")
        script.verify()
