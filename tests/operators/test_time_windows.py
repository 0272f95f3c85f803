"""Tumbling, hopping and session windows, and times of windows: incremental, and equal to the query in every epoch."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from tests.operators.histories import Changes, Source
from tests.operators.lab import Lab

_EVENTS = {
    "e": Relation(
        "e",
        (
            Field("k", "int", False),
            Field("g", "int"),
            Field("ts", "timestamp"),
            Field("n", "timestamp_ntz"),
            Field("v", "bigint"),
        ),
        ("k",),
    )
}
_BASE = datetime(2024, 3, 10, 6, 30, tzinfo=timezone.utc)
#: On, before and after the bounds of windows and gaps; the hour in which New York changes its clocks begins at 30.
_MINUTES = [0, 2, 5, 7, 10, 30, 31, 60, 61, -5, -90]

_QUERIES = {
    "tumbling": "SELECT window(ts, '30 minutes') AS w, k FROM e",
    "tumbling groups": "SELECT window.start AS s, window.end AS x, g, count(*) AS c FROM e GROUP BY window(n, '30 minutes'), g",
    "hopping": "SELECT window, count(*) AS c, sum(v) AS s FROM e GROUP BY window(ts, '30 minutes', '10 minutes', '5 minutes')",
    "hopping unevenly": "SELECT window, max(v) AS m FROM e GROUP BY window(ts, '25 minutes', '10 minutes')",
    "window_time": "SELECT window_time(window) AS t, count(*) AS c FROM (SELECT window, v FROM e "
    "GROUP BY window(ts, '5 minutes'), v) GROUP BY window(window, '1 hour'), window_time(window)",
    "with time": "SELECT window, count(*) AS c FROM e WHERE ts > now() - INTERVAL 1 HOUR GROUP BY window(ts, '10 minutes')",
    "session of a row": "SELECT session_window(ts, '5 minutes') AS w, k FROM e",
    "sessions": "SELECT session_window, g, count(*) AS c, sum(v) AS s FROM e GROUP BY session_window(ts, '5 minutes'), g",
    "sessions of all": "SELECT session_window.start AS a, session_window.end AS b, count(DISTINCT g) AS c, max(v) AS s FROM e "
    "GROUP BY session_window(n, CASE WHEN g = 1 THEN '5 minutes' ELSE '1 hour' END) HAVING count(*) > 1",
    "sessions joined": "SELECT e.k, s.c FROM e JOIN (SELECT session_window AS w, g, count(*) AS c FROM e "
    "GROUP BY session_window(ts, '5 minutes'), g) s ON e.g <=> s.g AND e.ts >= s.w.start AND e.ts < s.w.end",
}


def _epochs(seed: int, count: int) -> list[Changes]:
    source, draw, epochs = Source(keyed=("e",), bags=(), append_only=()), random.Random(seed), []
    for _ in range(count):
        operations = []
        for _ in range(8):
            moment = _BASE + timedelta(minutes=draw.choice(_MINUTES), microseconds=draw.choice([0, 0, 1]))
            ts = None if draw.random() < 0.1 else moment
            row = (draw.choice([None, 1, 2]), ts, None if ts is None else ts.replace(tzinfo=None), draw.randint(0, 9))
            operations.append(("e", draw.randint(0, 8), None if draw.random() < 0.25 else row))
        epochs.append(source.epoch(operations))
    return epochs


@pytest.mark.parametrize("name", _QUERIES)
def test_every_epoch_equals_the_query(spark: SparkSession, name: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    with Lab(session, _QUERIES[name], _EVENTS, instant=_BASE) as lab:
        for number, changes in enumerate(_epochs(seed=7, count=3)):
            lab.step(changes, _BASE + timedelta(minutes=30 * number))
            lab.check()
