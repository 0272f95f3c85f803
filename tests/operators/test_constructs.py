"""Constructs of SQL that become several operators: after every epoch the view equals its query run in full by Spark."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.capabilities import need_recursion
from tests.operators.histories import Source, epochs_of
from tests.operators.lab import Lab, decimal

QUERIES = {
    "scalar subquery without a guarantee": "SELECT k, (SELECT DISTINCT g FROM r WHERE k = 1) AS rg FROM t",
    "scalar subquery of no row": "SELECT k FROM t WHERE v > (SELECT w FROM r WHERE k = 77) OR s = 'a'",
    "scalar subquery in a join condition": "SELECT t.k, r.w FROM t JOIN r ON t.g = r.g AND r.w > (SELECT min(g) FROM r)",
    "scalar subquery in an outer join": "SELECT t.k, r.w FROM t LEFT JOIN r ON t.g = r.g AND r.w < (SELECT max(w) FROM r)",
    "scalar subquery in HAVING": "SELECT g FROM t GROUP BY g HAVING count(*) >= (SELECT min(g) FROM r)",
    "scalar subquery in a window": "SELECT k, sum((SELECT max(w) FROM r)) OVER (PARTITION BY g ORDER BY k) AS n FROM t",
    "correlated scalar subqueries": "SELECT k, (SELECT sum(w) FROM r WHERE r.g = t.g) AS sw, "
    "(SELECT count(*) FROM r WHERE r.g = t.g) AS n FROM t",
    "set operation below a subquery": "SELECT k FROM t WHERE g IN (SELECT g FROM r INTERSECT SELECT g FROM m)",
    "DISTINCT below a subquery": "SELECT k FROM t WHERE g IN (SELECT DISTINCT g FROM r WHERE EXISTS "
    "(SELECT 1 FROM m WHERE m.g = r.g))",
    "subqueries under OR": "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM r WHERE r.g = t.g) OR g NOT IN (SELECT g FROM m)",
    "subqueries that ask for any row": "SELECT k, EXISTS (SELECT 1 FROM m WHERE s = 'ab') AS e FROM t "
    "WHERE NOT EXISTS (SELECT 1 FROM r WHERE w > 6) OR k > 1",
    "groups if there is any group": "SELECT g, count(*) AS n FROM t GROUP BY g HAVING EXISTS (SELECT g FROM m GROUP BY g "
    "HAVING count(*) > 1)",
    "a join if there is any row": "SELECT t.k, r.w FROM t LEFT JOIN r ON t.g = r.g AND EXISTS (SELECT 1 FROM m WHERE s > 'a')",
    "intersect": "SELECT g FROM t INTERSECT SELECT g FROM r",
    "except": "SELECT g, s FROM t EXCEPT SELECT g, s FROM m",
    "intersect all": "SELECT g FROM t INTERSECT ALL SELECT g FROM m",
    "except all": "SELECT g FROM t EXCEPT ALL SELECT g FROM m",
    "lateral join": "SELECT t.k, x.n FROM t, LATERAL (SELECT count(*) AS n FROM r WHERE r.g = t.g) x",
    "left lateral join": "SELECT t.k, x.w FROM t LEFT JOIN LATERAL (SELECT w FROM r WHERE r.k = t.k) x",
    "pivot": "SELECT * FROM (SELECT g, s, v FROM t) PIVOT (sum(v) AS sv FOR s IN ('a' AS a, 'b' AS b))",
    "unpivot": "SELECT * FROM (SELECT k, g, CAST(v AS INT) AS v FROM t) UNPIVOT (x FOR name IN (g, v))",
    "cube": "SELECT g, s, grouping(g) AS gg, grouping_id(g, s) AS gi, sum(v) AS sv FROM t GROUP BY CUBE (g, s)",
    "rank over a rollup": "SELECT g, s, sum(v) AS sv, rank() OVER (PARTITION BY grouping(g) + grouping(s) ORDER BY sum(v) "
    "DESC) AS place FROM t GROUP BY ROLLUP (g, s)",
    "share of the whole": "SELECT g, sum(v) AS sv, sum(v) * 100 / sum(sum(v)) OVER () AS share FROM t GROUP BY g",
    "frames": "SELECT k, sum(v) OVER (PARTITION BY g ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS around, "
    "lag(v, 2) OVER (PARTITION BY g ORDER BY k) AS before, count(*) OVER (ORDER BY k ROWS UNBOUNDED PRECEDING) AS n FROM t",
    "arguments under other names": "SELECT a.k, nvl(b.s, a.s) AS s, left(b.s, 1) AS l FROM t a JOIN t b ON a.g = b.g "
    "WHERE b.v BETWEEN a.v - 1 AND 300 AND nvl(a.s, 'x') <> 'b'",
    "constants": "SELECT k, DATE '2024-02-01' - INTERVAL '3' DAY AS d, date_add(DATE '2024-01-01', k) AS e, "
    "make_date(2024, 1, k + 1) + INTERVAL 1 MONTH AS f FROM t",
    "conditional aggregates": "SELECT g, count_if(v > 0) AS n, bool_and(v > 0) AS b, max_by(s, k) AS m, "
    "sum(v) FILTER (WHERE s = 'a') AS sa, count(DISTINCT s) FILTER (WHERE v > 0) AS ns FROM t GROUP BY g",
    "ordered aggregates": "SELECT g, percentile(v, 0.5) AS p, var_pop(k) AS vp, array_sort(collect_set(s)) AS "
    "l FROM t GROUP BY g",
    "sums of all digits": "SELECT g, sum(CAST(v / 3 AS DECIMAL(38,12))) AS a, sum(CAST(v / 7 AS DECIMAL(38,20))) AS b, "
    "avg(CAST(v / 3 AS DECIMAL(38,12))) AS c FROM t GROUP BY g",
    "structs with fields of one name": "SELECT g, max_by(k, struct(v, v, k)) AS m FROM t GROUP BY g",
    "keys with fields of one name": "SELECT max(struct(k, k)) AS m, struct(g, g) AS g FROM t GROUP BY struct(g, g)",
    "extremes of structs": "SELECT g, max(struct(v, k)).k AS m FROM t GROUP BY g",
    "outer generator": "SELECT k, e FROM t LATERAL VIEW OUTER explode(split(s, 'a')) x AS e",
    "generator with positions": "SELECT k, p, e FROM t LATERAL VIEW posexplode(array(g, k)) x AS p, e",
    "limit below a join": "SELECT r.k, x.v FROM r JOIN (SELECT g, v, k FROM t ORDER BY v DESC, k LIMIT 2) x ON r.g = x.g",
    "limit and offset": "SELECT k, s FROM t ORDER BY s NULLS FIRST, k LIMIT 2 OFFSET 1",
    "order by what is not selected": "SELECT s FROM t ORDER BY v + k DESC, k LIMIT 3",
    "common table twice": "WITH c AS (SELECT g, count(*) AS n FROM t GROUP BY g) SELECT a.g, b.n FROM c a "
    "JOIN c b ON a.n = b.n",
    "lambda functions": "SELECT k, transform(array(g, k), x -> x + k) AS l, aggregate(array(g, k), 0, (a, x) "
    "-> a + x) AS n FROM t",
    "constants of all types": "SELECT t.k, x.* FROM t JOIN (VALUES (1, CAST(5 AS BIGINT), 1.50, 2.5D, DATE "
    "'2024-01-01', NULL), "
    "(2, CAST(6 AS BIGINT), 22.75, -1D, NULL, 'x')) AS x(a, b, c, d, e, f) ON t.g = x.a WHERE k < 2 * CAST(9 AS BIGINT)",
    "pipes": "FROM t |> WHERE g IN (FROM r |> WHERE w > 0 |> SELECT g) |> EXTEND k + 1 AS n |> SET s = upper(s) "
    "|> LEFT JOIN m ON m.g = t.g |> AGGREGATE sum(n) AS n, count(m.s) AS c GROUP BY t.g |> ORDER BY n |> LIMIT 2",
    "pipes of all kinds": "FROM t |> SELECT k, g, s, v |> AS x |> DROP v |> UNION ALL (SELECT k, g, 'b' FROM r) "
    "|> PIVOT (count(k) FOR s IN ('a' AS a, 'b' AS b)) |> UNPIVOT (n FOR name IN (a, b)) |> EXCEPT ALL (VALUES (1, 'a', 1L))",
    "like several": "SELECT k, s NOT LIKE ALL ('a_', '%z') AS a, s LIKE ALL ('a%', CAST(NULL AS STRING)) AS b, "
    "s NOT LIKE ANY ('a', '\\\\%', 'it''s') AS c FROM t WHERE s LIKE ANY ('a%', '_') OR s IS NULL",
    "limit all": "SELECT g, n FROM (SELECT g, count(*) AS n FROM t GROUP BY g LIMIT ALL) WHERE n > 1 LIMIT ALL",
    "recursion over constants": "WITH RECURSIVE d(n, s, x) AS (SELECT 1, 'a''b', array(0.5D) UNION ALL SELECT n + 1, "
    "concat(s, 'c'), array(n / 4D) FROM d WHERE n < 4) SELECT n, d.s, x, count(k) AS c, sum(v) AS v FROM d "
    "LEFT JOIN t ON t.g = n GROUP BY n, d.s, x",
    "recursion over constants twice": "WITH RECURSIVE d(day) AS (VALUES (DATE '2024-01-01'), (NULL) UNION ALL SELECT day + 1 "
    "FROM d WHERE day < DATE '2024-01-04') SELECT a.day, b.day AS next FROM d a JOIN d b ON b.day = a.day + 1 "
    "JOIN t ON t.k = day(a.day)",
    "join with constants": "SELECT t.k, x.b FROM t JOIN (VALUES (1, 'one'), (2, 'two')) AS x(a, b) ON t.g = x.a",
}

_HISTORY: list[list[Any]] = [
    [
        ("t", 1, (1, "a", decimal(150))),
        ("t", 2, (1, "b", None)),
        ("t", 4, (2, "ab", decimal(90))),
        ("r", 1, (1, 1)),
        ("r", 4, (2, 7)),
        ("m", False, (1, "a")),
    ],
    [
        ("t", 1, (2, "a", decimal(1))),
        ("t", 1, (0, "b", decimal(700))),
        ("t", 5, (1, None, decimal(150))),
        ("m", False, (1, "a")),
        ("m", False, (2, "ab")),
        ("r", 2, (None, 5)),
        ("r", 3, (0, 4)),
    ],
    [],
    [("t", 1, None), ("t", 2, None), ("r", 1, None), ("m", True, (1, "a")), ("t", 3, (0, None, decimal(-5)))],
]


@pytest.mark.parametrize("name", QUERIES)
def test_every_epoch_equals_the_query_run_in_full(spark: SparkSession, name: str) -> None:
    if "RECURSIVE" in QUERIES[name]:
        need_recursion(spark)
    with Lab(spark, QUERIES[name]) as lab:
        for changes in epochs_of(_HISTORY):
            lab.step(changes)
            lab.check()


def test_a_scalar_subquery_of_two_rows_is_an_error_as_in_spark(spark: SparkSession) -> None:
    with Lab(spark, "SELECT k, (SELECT w FROM r WHERE g = 1) AS w FROM t") as lab:
        source = Source()
        lab.step(source.epoch([("t", 1, (1, "a", None)), ("r", 1, (1, 3))]))
        lab.check()
        lab.step(source.epoch([("r", 1, (2, 3)), ("r", 2, (1, 4))]))
        lab.check()
        with pytest.raises((PySparkException, Py4JJavaError), match="SCALAR_SUBQUERY_TOO_MANY_ROWS"):
            lab.step(source.epoch([("r", 1, (1, 3))]))
