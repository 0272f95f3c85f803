"""Rows that come and go by time: after every epoch the view equals its query run in full at the epoch's instant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.jobs.plan.nodes import Field, Filter, TemporalFilter, TemporalProject, TimeBound, walk
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.jobs.plan.stateful_plan import StatefulPlan
from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from relstate_dagster.jobs.planner.planning import plan_view
from relstate_dagster.state_lib.errors import PlanError
from tests.operators.lab import Lab, Row

_RELATIONS = {
    # An event: key, group, when (may be NULL), and its day.
    "ev": Relation("ev", (Field("k", "int", False), Field("g", "int"), Field("ts", "timestamp"), Field("d", "date")), ("k",)),
    # A multiset of periods of validity.
    "va": Relation("va", (Field("g", "int"), Field("since", "timestamp"), Field("until", "timestamp"))),
}
_NOON = datetime(2024, 2, 28, 12, tzinfo=timezone.utc)


def _at(hours: float) -> datetime:
    return _NOON + timedelta(hours=hours)


def _event(k: int, g: int | None, hours: float | None) -> Row:
    when = None if hours is None else _at(hours)
    return (k, g, when, None if when is None else when.date())


def _period(g: int, since: float | None, until: float) -> Row:
    return (g, None if since is None else _at(since), _at(until))


#: (instant in hours after noon, changes); the comments are about `ts > now() - INTERVAL 1 DAY`.
_EPOCHS: list[tuple[float, Mapping[str, list[tuple[Row, int]]]]] = [
    (
        0,
        {
            "ev": [
                (_event(1, 1, -30), 1),  # outside from the start
                (_event(2, 1, -23), 1),
                (_event(3, 2, -1), 1),
                (_event(4, 2, None), 1),
                (_event(5, None, 10), 1),
                (_event(6, 1, -12), 1),
            ],
            "va": [(_period(1, -5, 5), 2), (_period(2, 3, 30), 1), (_period(3, None, 30), 1)],
        },
    ),
    (2, {}),  # 2 leaves by time alone
    (
        13,
        {
            "ev": [
                (_event(7, 1, -20), 1),  # arrives outside
                (_event(1, 1, -30), -1),  # deleted outside
                (_event(6, 1, -12), -1),  # moves to another group at the instant at which it would have left
                (_event(6, 2, -11), 1),
                (_event(4, 2, None), -1),
            ],
            "va": [(_period(1, -5, 5), -1)],
        },
    ),
    (13.001, {}),  # time moves, no row crosses
    (70, {"ev": [(_event(3, 2, -1), -1), (_event(3, 2, 60), 1)], "va": [(_period(1, 12, 80), 3)]}),
]

_QUERIES = {
    "the last day": "SELECT * FROM ev WHERE ts > now() - INTERVAL 1 DAY",
    "an interval on the column": "SELECT k FROM ev WHERE current_timestamp() <= ts + INTERVAL 12 HOURS AND g > 0",
    "today, and the NULL-safe tomorrow": "SELECT k, d FROM ev WHERE d = current_date() "
    "UNION ALL SELECT k, d FROM ev WHERE d <=> current_date() + 1",
    "an expression between times": "SELECT k FROM ev WHERE ts + make_interval(0, 0, 0, g) BETWEEN current_date() AND now()",
    "now between columns, of a multiset": "SELECT g FROM va WHERE now() BETWEEN since AND until",
    "two bounds": "SELECT g, until FROM va WHERE until > now() AND since <= localtimestamp() - INTERVAL 2 HOURS",
    "below an aggregate": "SELECT g, count(*) AS n, max(ts) AS last, collect_set(k) AS ks FROM ev "
    "WHERE ts > now() - INTERVAL 1 DAY GROUP BY g",
    "above an aggregate": "SELECT g, max(ts) AS last FROM ev GROUP BY g HAVING max(ts) > now() - INTERVAL 1 DAY",
    "of one and of both sides of a join": "SELECT ev.k, va.g FROM ev JOIN va ON ev.g = va.g "
    "WHERE ev.ts > now() - INTERVAL 1 DAY AND ev.ts + (va.until - va.since) > now()",
    "below an outer join": "SELECT ev.k, x.until FROM ev LEFT JOIN va x ON ev.g = x.g AND x.until > now()",
    "with subqueries": "SELECT k FROM ev WHERE ts + (SELECT max(until - since) FROM va) > now() "
    "AND g NOT IN (SELECT g FROM va WHERE until < now())",
    "a constant and a number": "SELECT k FROM ev WHERE DATE '2024-02-29' <= current_date() "
    "AND unix_timestamp(ts) > unix_timestamp() - 3600 * 24",
    "of rows without a key, of which some columns are read": "SELECT g, count(*) AS n FROM va WHERE until > now() GROUP BY g",
    "of a join, of which some columns are read": "SELECT va.g FROM ev JOIN va ON ev.g = va.g "
    "AND ev.ts + (va.until - va.since) > now()",
    "a number of days": "SELECT k FROM ev WHERE datediff(current_date(), d) <= 1 AND 1 > datediff(d, now()) "
    "AND datediff(now(), ts) BETWEEN -1 AND 2",
    "below a limit": "SELECT k, ts FROM ev WHERE ts >= date_trunc('DAY', now()) ORDER BY ts, k LIMIT 2",
}


#: Time anywhere else, as long as it is compared: a temporal projection has what the comparisons come to.
_PROJECTED = {
    "in the select list": "SELECT k, CASE WHEN ts > now() THEN 'to come' WHEN ts IS NULL THEN 'never' ELSE 'gone' END AS what "
    "FROM ev",
    "as values": "SELECT g, ts > now() AS later, ts BETWEEN now() - INTERVAL 1 DAY AND now() AS today FROM ev",
    "under OR": "SELECT k FROM ev WHERE ts > now() - INTERVAL 1 DAY OR g = 2",
    "under OR, with others": "SELECT k FROM ev WHERE g IS NOT NULL AND (ts > now() OR ts IS NULL) AND d >= current_date() - 1",
    "two alternatives": "SELECT * FROM ev WHERE (ts > now() AND g = 1) OR (d < current_date() AND g = 2)",
    "compared with a truth": "SELECT k FROM ev WHERE (ts > now()) <=> (g = 1)",
    "in a filtered aggregate": "SELECT g, count(*) FILTER (WHERE ts > now() - INTERVAL 1 DAY) AS n, count(*) AS all, "
    "max(CASE WHEN ts <= now() THEN ts END) AS last FROM ev GROUP BY g",
    "in what is grouped by": "SELECT ts > now() AS later, count(*) AS n, count(DISTINCT g) AS gs FROM ev GROUP BY 1",
    "of rows without a key": "SELECT g, CASE WHEN until > now() THEN 1 ELSE 0 END AS open FROM va",
    "of one side of an outer join": "SELECT ev.k, x.until FROM ev LEFT JOIN va x ON ev.g = x.g "
    "AND (x.until > now() OR ev.k = 3)",
    "of both sides of a full join": "SELECT ev.k, x.until FROM ev FULL JOIN va x ON ev.g = x.g AND x.until > now() "
    "AND ev.ts < now()",
    "of a pair": "SELECT ev.k FROM ev JOIN va ON ev.g = va.g WHERE ev.ts + (va.until - va.since) > now() OR va.g = 1",
    "above an aggregate, under OR": "SELECT g, max(ts) AS last FROM ev GROUP BY g HAVING max(ts) > now() OR count(*) > 1",
    "with a subquery": "SELECT k, ts + (SELECT max(until - since) FROM va) > now() AS open, "
    "(SELECT max(g) FROM va) AS m FROM ev",
    "under OR, beside a subquery": "SELECT k FROM ev WHERE (ts > now() OR g = 1) "
    "AND ts + (SELECT max(until - since) FROM va) > now() AND d IS NOT NULL",
    "with a limit": "SELECT k, ts > now() AS later FROM ev ORDER BY later DESC, k LIMIT 3",
    "in a window": "SELECT k, sum(CASE WHEN ts > now() THEN 1 ELSE 0 END) OVER (PARTITION BY g, d < current_date() ORDER BY k) "
    "AS n FROM ev",
    "unequal": "SELECT k FROM ev WHERE d <> current_date()",
}


@pytest.mark.parametrize("name", _PROJECTED)
def test_what_comparisons_with_the_time_come_to(spark: SparkSession, name: str) -> None:
    with Lab(spark, _PROJECTED[name], _RELATIONS, strict=True) as lab:
        assert any(isinstance(n, TemporalProject) for n in walk(lab.plan))
        assert StatefulPlan.from_dict(lab.stateful.to_dict()) == lab.stateful
        for hours, changes in _EPOCHS:
            lab.step(changes, _at(hours))
            lab.check()
        lab.step({}, _at(-3))  # a clock that is set back
        lab.check()


@pytest.mark.parametrize("name", _QUERIES)
def test_every_epoch_equals_the_query_at_its_instant(spark: SparkSession, name: str) -> None:
    with Lab(spark, _QUERIES[name], _RELATIONS) as lab:
        assert any(isinstance(n, TemporalFilter) for n in walk(lab.plan))
        assert StatefulPlan.from_dict(lab.stateful.to_dict()) == lab.stateful
        for hours, changes in _EPOCHS:
            lab.step(changes, _at(hours))
            lab.check()


def test_explain_says_what_is_followed(spark: SparkSession) -> None:
    text = explain_plan(plan_view(spark, _QUERIES["the last day"], _RELATIONS))
    assert "TemporalFilter `ts` > CAST((now() - INTERVAL '1' DAY) AS TIMESTAMP)  [stream key (k);" in text
    assert "cost |Δ| + rows that time moves across]" in text
    assert "TemporalFilter input: materialized input, key ts, k prefix 1, distribution hash (ts), weights add up" in text


def test_the_state_has_the_columns_that_are_read(spark: SparkSession) -> None:
    def state(query: str) -> list[str]:
        plan = plan_view(spark, query, _RELATIONS)
        (node,) = (node for node in walk(plan) if isinstance(node, TemporalFilter | TemporalProject))
        return sorted(c.name for table in infer_state_tables(node) for c in table.columns)

    assert state("SELECT k FROM ev WHERE ts > now() - INTERVAL 1 DAY") == ["k", "ts"]
    assert state("SELECT count(*) FROM va WHERE until > now()") == ["until"]
    assert state("SELECT max(g) FROM va WHERE since IS NOT NULL AND until > now()") == ["g", "until"]
    assert state("SELECT * FROM va WHERE until > now()") == ["g", "since", "until"]
    assert state("SELECT count(*) FILTER (WHERE until > now()) FROM va") == ["until"]
    assert state("SELECT max(g) FROM va WHERE since IS NOT NULL AND (until > now() OR g = 1)") == ["g", "until"]
    plan = plan_view(spark, "SELECT k FROM ev WHERE d IS NOT NULL AND (ts > now() OR ts IS NULL)", _RELATIONS)
    (node,) = (node for node in walk(plan) if isinstance(node, TemporalProject))
    assert any(isinstance(below, Filter) for below in walk(node)), "what other conditions leave out is not kept"


def test_rows_leave_and_come_by_time_alone(spark: SparkSession) -> None:
    def ks(lab: Lab) -> list[int]:
        return sorted(row.k for row in lab.view().collect())

    events = [(_event(k, 1, hours), 1) for k, hours in enumerate([-23.5, -1, 1])]
    query = "SELECT k FROM ev WHERE ts > now() - INTERVAL 1 DAY UNION ALL SELECT k + 10 FROM ev WHERE ts < now()"
    with Lab(spark, query, _RELATIONS) as lab:
        lab.step({"ev": events}, _at(0))
        assert ks(lab) == [0, 1, 2, 10, 11]
        lab.step({}, _at(1.5))
        assert ks(lab) == [1, 2, 10, 11, 12]
        lab.step({}, _at(0))  # a clock that is set back takes it all back
        assert ks(lab) == [0, 1, 2, 10, 11]


def test_the_date_is_that_of_the_session_time_zone(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    with Lab(session, "SELECT k FROM ev WHERE d = current_date()", _RELATIONS) as lab:
        lab.step({"ev": [((1, 1, None, date(2024, 2, 28)), 1), ((2, 1, None, date(2024, 2, 29)), 1)]}, _at(-2))
        lab.check()
        assert [row.k for row in lab.view().collect()] == [1]
        lab.step({}, _at(0))
        lab.check()
        assert [row.k for row in lab.view().collect()] == [2]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, now() AS n FROM ev",
        "SELECT k FROM ev WHERE now() - ts < INTERVAL 1 DAY",
        "SELECT k, CASE WHEN now() - ts < INTERVAL 1 DAY THEN 1 END AS n, ts > now() AS later FROM ev",
        "SELECT k FROM ev WHERE ts > now() - (SELECT max(until - since) FROM va)",
        "SELECT ev.k FROM ev LEFT JOIN va ON ev.g = va.g AND ev.ts + (va.until - va.since) > now()",
        "SELECT ev.k FROM ev LEFT JOIN va ON ev.g = va.g AND (ev.ts + (va.until - va.since) > now() OR ev.k = 1)",
    ],
)
def test_time_anywhere_else_is_not_followed(spark: SparkSession, query: str) -> None:
    with pytest.raises(NotIncremental, match="time-dependent"):
        plan_view(spark, query, _RELATIONS)


def test_a_bound_compares_by_what_is_known() -> None:
    with pytest.raises(PlanError, match="not by <>"):
        TimeBound("ts", "<>", "now()")
