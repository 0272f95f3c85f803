"""Queries as of an instant: wherever a current time function stands, it means that one."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.planner.current_time import query_at, reads_current_time
from tests.capabilities import need

_INSTANT = datetime(2024, 3, 1, 5, 6, 7, 123456, tzinfo=timezone.utc)
_LOCAL = "2024-02-29 21:06:07.123456"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    session.sql("CREATE TEMPORARY VIEW v AS SELECT id, now() AS n, curdate() AS d FROM range(2)")
    return session


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT now(), current_timestamp, to_utc_timestamp(now(), 'UTC')", [(_LOCAL, _LOCAL, _LOCAL)]),
        ("SELECT current_date(), localtimestamp(), unix_timestamp()", [("2024-02-29", _LOCAL, "1709269567")]),
        ("SELECT current_time(), current_time(0)", [("21:06:07.123456", "21:06:07")]),
        ("SELECT n, d FROM v WHERE id = 0", [(_LOCAL, "2024-02-29")]),
        (
            "SELECT id FROM v WHERE n > (SELECT max(now()) - INTERVAL 1 SECOND FROM v) AND d IN (SELECT curdate())",
            [("0",), ("1",)],
        ),
        ("WITH c AS (SELECT now() AS n) SELECT a.n FROM c a JOIN v ON a.n = v.n AND v.n <= now() LIMIT 1", [(_LOCAL,)]),
        ("SELECT * FROM VALUES (now()) AS x(a)", [(_LOCAL,)]),
        ("SELECT count(*) FILTER (WHERE n = now()) FROM v GROUP BY d, current_date()", [("2",)]),
        ("SELECT sum(id) OVER (ORDER BY n + INTERVAL 1 DAY), transform(array(1), x -> now())[0] FROM v", [("1", _LOCAL)] * 2),
    ],
)
def test_a_query_at_an_instant(session: SparkSession, query: str, rows: list[tuple[str, ...]]) -> None:
    if "current_time()" in query:
        need(session, "SELECT current_time()")
    frame = query_at(session, query, _INSTANT)
    columns = [f"c{n}" for n in range(len(frame.columns))]
    text = frame.toDF(*columns).selectExpr(*(f"CAST({name} AS STRING)" for name in columns))
    assert sorted(tuple(row) for row in text.collect()) == rows


def test_a_query_without_time_is_left_as_it_is(session: SparkSession) -> None:
    def reads(query: str) -> bool:
        return reads_current_time(session, session.sql(query)._jdf.queryExecution().analyzed())

    assert reads("SELECT id FROM v")  # the view computes the time, whether it is used or not
    assert not reads("SELECT current_user(), current_timezone(), id FROM range(3)")
