"""Full joins whose keys may be NULL, windows in correlated subqueries, and constant relations."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from relstate_dagster.jobs.planner.planning import plan_view
from tests.capabilities import need_recursion
from tests.operators.histories import Source, epochs_of
from tests.operators.lab import RELATIONS, Lab, decimal

_HISTORY = [
    [
        *(("t", k, (k % 3 or None, "ab"[k % 2], decimal(k))) for k in range(5)),
        *(("m", False, (k % 3 or None, "abc"[k % 3])) for k in range(5)),
        ("m", False, (1, "x")),
        ("r", 1, (1, 1)),
    ],
    # A NULL group on both sides of a join, and one side's only row alike and then not.
    [("r", 2, (None, 5)), ("r", 3, (0, 4)), ("m", False, (1, "x")), ("t", 3, None)],
    [("r", 2, None), ("m", True, (1, "x")), ("m", True, (1, "x")), ("t", 0, (1, "z", decimal(1)))],
]

_QUERIES = {
    "one row each": "SELECT a.c, b.d FROM (SELECT count(*) AS c FROM t) a "
    "FULL JOIN (SELECT count(*) AS d FROM r) b ON a.c = b.d",
    "no row or one": "SELECT * FROM (SELECT count(*) AS c FROM t HAVING count(*) > 4) a "
    "FULL JOIN (SELECT sum(k) AS d FROM r HAVING count(*) > 1) b ON a.c = b.d",
    "groups": "SELECT a.g, a.c, b.d FROM (SELECT g, count(*) AS c FROM t GROUP BY g) a "
    "FULL JOIN (SELECT g, count(*) AS d FROM r GROUP BY g) b ON a.g = b.g",
    "groups not shown": "SELECT count(*) AS n, sum(a.c) AS c FROM (SELECT g, count(*) AS c FROM t GROUP BY g) a "
    "FULL JOIN (SELECT g, count(*) AS d FROM r GROUP BY g) b ON a.g = b.g",
    "lateral row number": "SELECT t.k, x.s, x.rn FROM t, LATERAL "
    "(SELECT m.s, row_number() OVER (ORDER BY s) AS rn FROM m WHERE m.g = t.g) x",
    "exists row number": "SELECT t.k FROM t WHERE EXISTS "
    "(SELECT 1 FROM (SELECT m.s, row_number() OVER (ORDER BY s) AS rn FROM m WHERE m.g = t.g) q WHERE q.rn = 2)",
    "scalar row number": "SELECT t.k, (SELECT max(rn) FROM (SELECT row_number() OVER (ORDER BY s) AS rn FROM m "
    "WHERE m.g = t.g)) AS y FROM t",
    "lateral first": "SELECT t.k, x.s FROM t LEFT JOIN LATERAL (SELECT m.s FROM m WHERE m.g = t.g ORDER BY s DESC LIMIT 1) x",
    "lateral first by what is shown": "SELECT t.k, x.rk FROM t, LATERAL (SELECT r.w, r.k AS rk FROM r WHERE r.g = t.g "
    "ORDER BY w DESC, rk LIMIT 2) x",
    "range": "SELECT r.id, t.k FROM range(8, -1, -2) r FULL JOIN t ON t.k = r.id",
    "range below": "SELECT t.k FROM t WHERE NOT EXISTS (SELECT 1 FROM range(2) q WHERE q.id = t.k)",
    "empty range": "SELECT t.k, r.id FROM t LEFT JOIN range(3, 3) r ON r.id = t.k",
    "values": "SELECT t.k, v.b FROM t RIGHT JOIN VALUES (1, 'a'), (2, NULL), (9, 'c') AS v(a, b) ON v.a = t.k",
}


@pytest.mark.parametrize("name", _QUERIES)
def test_every_epoch_equals_the_query(spark: SparkSession, name: str) -> None:
    with Lab(spark, _QUERIES[name]) as lab:
        for changes in epochs_of(_HISTORY, Source()):
            lab.step(changes)
            lab.check()


@pytest.mark.parametrize("order", ["ORDER BY w DESC, k", ""])
def test_first_rows_in_no_order_are_those_that_spark_takes(spark: SparkSession, order: str) -> None:
    with pytest.raises(NotIncremental, match="select that column too"):
        plan_view(
            spark, f"SELECT t.k, x.rk FROM t, LATERAL (SELECT r.k AS rk FROM r WHERE r.g = t.g {order} LIMIT 2) x", RELATIONS
        )


@pytest.mark.parametrize(
    ("recursion", "why"),
    [
        ("SELECT k FROM t WHERE g = 1 UNION ALL SELECT t.k FROM t JOIN d ON t.g = d.n", "reads sources"),
        ("SELECT 1 UNION ALL SELECT n + 1 FROM d WHERE n < (SELECT max(k) FROM t)", "reads sources"),
        ("SELECT year(current_date()) UNION ALL SELECT n + 1 FROM d WHERE n < 2020", "time"),
        ("SELECT rand() UNION ALL SELECT n + 1 FROM d WHERE n < 3", "non-deterministic"),
        (
            "SELECT hex(aes_encrypt('a', '0000111122223333')) UNION ALL SELECT concat(n, 'x') FROM d WHERE n < '1'",
            "non-determin",
        ),
        ("SELECT 1 UNION ALL SELECT n + 1 FROM d", "RECURSION_LEVEL_LIMIT"),
        ("SELECT id FROM range(2000) UNION ALL SELECT n + 5000 FROM d WHERE n < 5000", "1,000 rows"),
    ],
)
def test_a_recursion_is_a_constant_or_the_query_is_run_in_full(spark: SparkSession, recursion: str, why: str) -> None:
    need_recursion(spark)
    with pytest.raises(NotIncremental, match=why):
        plan_view(spark, f"WITH RECURSIVE d(n) AS ({recursion}) SELECT n, count(*) AS c FROM d GROUP BY n", RELATIONS)


def test_a_long_range_is_no_array(spark: SparkSession) -> None:
    with pytest.raises(NotIncremental, match="range"):
        plan_view(spark, "SELECT id FROM range(1000000000)", RELATIONS)
