"""Views whose rows depend on the date: maintained on one day, recomputed on the next."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import sync_project, why
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.engine.instants import date_in, start_of_day, timestamp_sql
from relstate_dagster.jobs.plan.explain import explain_plan
from relstate_dagster.jobs.run import freshness, preview
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.state_lib.errors import DeclarationError, PlanError, RelstateError
from tests.epoch.clocks import SetClock
from tests.epoch.scripts import Script

_SOURCES = """
CREATE TABLE ev (k INT, g INT, ts TIMESTAMP, v DOUBLE, PRIMARY KEY (k));
CREATE TABLE names (g INT, since DATE, PRIMARY KEY (g));
CREATE TABLE bag (g INT, d DATE);
CREATE TABLE lines (k INT, d DATE, PRIMARY KEY (k)) TBLPROPERTIES ('delta.appendOnly' = 'true');
"""
#: Queries that no temporal filter can follow, as the time stands in what they show or compute.
_QUERIES = {
    "shown": "SELECT *, current_date() AS run_date FROM ev",
    "cast": "SELECT k, CAST(current_timestamp() AS DATE) AS run_date, date_trunc('month', now()) AS month FROM ev",
    "age": "SELECT g, count(*) AS n, max(datediff(current_date(), CAST(ts AS DATE))) AS age FROM ev GROUP BY g",
    "joined": "SELECT k, months_between(current_date(), since) AS months FROM ev LEFT JOIN names USING (g)",
    "grouped": "SELECT datediff(to_date(now()), d) AS age, count(*) AS n, min(g) AS least FROM bag GROUP BY 1",
    "first": """SELECT k, g, nth FROM (SELECT *, row_number() OVER (
        PARTITION BY g ORDER BY abs(datediff(current_date(), CAST(ts AS DATE))), k) AS nth FROM ev) WHERE nth <= 2""",
    "spine": """WITH days AS (SELECT explode(sequence(DATE '2024-04-26', current_date())) AS d)
        SELECT days.d, count(k) AS n FROM days LEFT JOIN ev ON CAST(ts AS DATE) = days.d GROUP BY days.d""",
    "filtered": """SELECT k, v * dayofmonth(current_date()) AS w FROM ev
        WHERE CAST(ts AS DATE) >= current_date() - INTERVAL 2 DAYS""",
    "young": "SELECT k, datediff(current_date(), d) AS age FROM lines WHERE datediff(current_date(), d) BETWEEN 0 AND 3",
    "distinct": "SELECT DISTINCT weekofyear(current_date()) - weekofyear(ts) AS weeks FROM ev",
    "newest": "SELECT k, datediff(current_date(), CAST(ts AS DATE)) AS age FROM ev ORDER BY ts DESC, k LIMIT 3",
    "exists": "SELECT g FROM names WHERE EXISTS (SELECT 1 FROM bag WHERE bag.g = names.g AND day(d) = day(current_date()))",
    "above": "SELECT run_date, g, sum(v) AS v FROM shown GROUP BY run_date, g",
    "beside": """SELECT age.g, age, months FROM age
        JOIN (SELECT g, max(months) AS months FROM joined JOIN ev USING (k) GROUP BY g) USING (g)""",
}


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path, clock: SetClock) -> Script:
    script = Script(spark, tmp_path / "warehouse", clock)
    script.run(_SOURCES)
    return script


def _changed(draw: random.Random, last_key: int) -> tuple[str, int]:
    """Statements that change the sources, and the greatest key after them."""
    statements = []
    for _ in range(draw.randint(1, 3)):
        day = date(2024, 5, 1) + timedelta(days=draw.randint(-5, 5))
        key, group = draw.randint(1, max(last_key, 1)), draw.randint(1, 4)
        kind = draw.choice(["new", "new", "update", "delete", "names", "bag", "bag gone", "lines"])
        if kind in ("new", "lines"):
            last_key += 1
        statements.append(
            {
                "new": f"INSERT INTO ev VALUES ({last_key}, {group}, TIMESTAMP '{day} {draw.randint(10, 19)}:00', {key / 7})",
                "update": f"UPDATE ev SET ts = ts + INTERVAL {draw.randint(-3, 3)} DAYS, v = v + 1 WHERE k = {key}",
                "delete": f"DELETE FROM ev WHERE k = {key}",
                "names": f"MERGE INTO names USING (SELECT {group} AS g, DATE '{day}' AS since) AS s ON names.g = s.g "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
                "bag": f"INSERT INTO bag VALUES ({group}, DATE '{day}'), ({group}, NULL)",
                "bag gone": f"DELETE FROM bag WHERE d = DATE '{day}'",
                "lines": f"INSERT INTO lines VALUES ({last_key}, DATE '{day}')",
            }[kind]
        )
    return ";\n".join(statements) + ";\n", last_key


@pytest.mark.parametrize("seed", range(6))
def test_views_equal_their_queries_on_every_day(script: Script, clock: SetClock, seed: int) -> None:
    draw = random.Random(seed)
    text, key = "", 0
    for _ in range(4):
        more, key = _changed(draw, key)
        text += more
    chain = ["shown", "above"] if seed % 2 else ["age", "joined", "beside"]
    names = [*draw.sample([name for name in _QUERIES if name not in ("shown", "above", "age", "joined", "beside")], 4), *chain]
    script.run(text + "".join(f"CREATE MATERIALIZED VIEW {name} AS {_QUERIES[name]};\n" for name in names))
    views = script.warehouse.read().views
    assert {name: view.reason for name, view in views.items() if view.strategy != "incremental"} == {}
    assert {name for name, view in views.items() if not view.plan.is_of_a_day} <= {"exists", "above", "beside"}
    script.verify()
    for hours in draw.sample([0, 1, 1, 13, 24, 50], 5):
        if draw.random() < 0.8:
            text, key = _changed(draw, key)
            script.run(text)
        clock.move(hours=hours)
        script.run("REFRESH")
        script.verify()


def _reports(script: Script, spark: SparkSession, clock: SetClock, *statements: str, hours: float = 0) -> dict[str, ViewReport]:
    clock.move(hours=hours)
    if statements:
        script.run(";\n".join(statements))
    reports = list(EpochRunner(spark, script.warehouse, clock=clock).run())
    script.verify()
    return {report.view: report for report in reports}


def test_all_rows_are_computed_once_a_day_and_state_is_filled_when_it_is_needed(
    script: Script, spark: SparkSession, clock: SetClock
) -> None:
    script.run(
        "INSERT INTO ev SELECT id, id % 3, TIMESTAMP '2024-04-30 10:00:00', id FROM range(30);"
        + "".join(f"CREATE MATERIALIZED VIEW {name} AS {_QUERIES[name]};" for name in ("shown", "age", "above"))
    )
    new = "INSERT INTO ev VALUES ({0}, 1, TIMESTAMP '2024-05-01 10:00:00', 1)".format
    same_day = _reports(script, spark, clock, new(40), hours=1)
    assert {name: report.strategy for name, report in same_day.items()} == dict.fromkeys(
        ["shown", "age", "above"], "incremental"
    )
    assert (same_day["shown"].rows_inserted, same_day["shown"].rows_deleted) == (1, 0)
    nothing = _reports(script, spark, clock, hours=1)
    assert all(report.skipped for report in nothing.values())
    next_day = _reports(script, spark, clock, hours=24)
    assert next_day["age"].reason == "recomputed: the date has changed from 2024-05-01 to 2024-05-02"
    assert next_day["age"].strategy == "full"
    assert script.warehouse.read().views["age"].unfilled, "no state is kept"
    assert (next_day["shown"].rows_inserted, next_day["shown"].rows_deleted) == (31, 31)
    assert next_day["above"].strategy == "incremental", "a view over it follows its changes"
    again = _reports(script, spark, clock, hours=24)
    assert again["age"].reason == "recomputed: the date has changed from 2024-05-02 to 2024-05-03"
    filled = _reports(script, spark, clock, new(41), hours=1)
    assert any("state is filled" in line for line in filled["age"].stages)
    followed = _reports(script, spark, clock, new(42), hours=1)
    assert not any(line.startswith("recompute") for line in followed["age"].stages)
    # Stored as planned, whatever date it was computed on.
    assert all(view.plan.is_of_a_day for name, view in script.warehouse.read().views.items() if name != "above")
    assert "current_date() AS run_date" in explain_plan(script.warehouse.read().views["shown"].plan)


def test_another_date_is_work_for_those_who_look_ahead(
    script: Script, spark: SparkSession, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = f"CREATE MATERIALIZED VIEW age AS {_QUERIES['age']};"
    script.run(view)
    monkeypatch.setattr(preview, "utc_now", clock)
    monkeypatch.setattr(freshness, "utc_now", clock)
    project = build_project(parse_text(_SOURCES + view, "p.sql"))

    def looked_at() -> tuple[str, bool, dict[str, str]]:
        (found,) = preview.preview_run(script.warehouse, project, most_tasks=2)
        is_idle = preview.idle_reports(script.warehouse, project, ["age"]) is not None
        return found.action.name, is_idle, freshness.views_behind(script.warehouse, ["age"])

    assert looked_at() == ("NOTHING", True, {})
    clock.move(hours=24)
    changed = "the date has changed from 2024-05-01 to 2024-05-02"
    assert looked_at() == ("RECOMPUTE", False, {"age": f"depends on the date, and {changed}"})
    assert preview.preview_run(script.warehouse, project, most_tasks=2)[0].why == f"recomputed: {changed}"
    _reports(script, spark, clock)
    assert looked_at() == ("NOTHING", True, {})


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MATERIALIZED VIEW v AS SELECT k, now() AS at, current_date() AS d FROM ev",
        "CREATE MATERIALIZED VIEW v AS SELECT k, date_trunc('hour', now()) AS at FROM ev",
        "CREATE MATERIALIZED VIEW v AS SELECT k, CAST(now() - INTERVAL 3 HOURS AS DATE) AS d FROM ev",
        "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('state.ttl' = '2 days') AS SELECT g, current_date() AS d FROM ev",
        "CREATE TABLE a (d DATE) TBLPROPERTIES ('delta.appendOnly' = 'true');"
        "CREATE MATERIALIZED VIEW v AS SELECT d, current_date() AS now FROM a",
        "CREATE TABLE a (k INT, at TIMESTAMP, PRIMARY KEY (k)) TBLPROPERTIES ('source.watermark' = 'at');"
        "CREATE MATERIALIZED VIEW v AS SELECT k, current_date() AS now FROM a",
    ],
)
def test_what_cannot_be_computed_anew_or_reads_more_than_the_date_runs_in_full(
    script: Script, clock: SetClock, statement: str
) -> None:
    script.run(statement)
    view = script.warehouse.read().views["v"]
    assert (view.strategy, "time-dependent" in str(view.reason)) == ("full", True)
    script.verify()


def test_an_incremental_policy_refuses_the_date(script: Script) -> None:
    with pytest.raises(PlanError, match=r"cannot be maintained incrementally: .*time-dependent"):
        script.run(
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('refresh.policy' = 'incremental') AS SELECT current_date() AS d FROM ev"
        )


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Kiritimati", "+02:00", "GMT-3", "UTC+5:30"]
)
def test_a_date_is_that_of_spark(spark: SparkSession, zone: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    start = datetime(2024, 3, 30, 20, tzinfo=timezone.utc)
    instants = [start + timedelta(minutes=30 * n) for n in range(60)]
    dates = ", ".join(f"CAST({timestamp_sql(instant)} AS DATE)" for instant in instants)
    assert list(session.sql(f"SELECT array({dates})").head()[0]) == [date_in(zone, instant) for instant in instants]


def test_a_zone_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"there is no time zone Nowhere/Land"):
        date_in("Nowhere/Land", datetime.now(timezone.utc))


def test_why_a_row_changed_with_the_date(script: Script, spark: SparkSession, clock: SetClock) -> None:
    script.run(
        "INSERT INTO ev SELECT id, id % 3, TIMESTAMP '2024-04-30 10:00:00', id FROM range(6);"
        + "".join(f"CREATE MATERIALIZED VIEW {name} AS {_QUERIES[name]};" for name in ("shown", "age", "above"))
    )
    _reports(script, spark, clock, "INSERT INTO ev VALUES (9, 1, TIMESTAMP '2024-05-01 10:00:00', 1)", hours=24)
    changed = "the date has changed from 2024-05-01 to 2024-05-02: all rows of {} were computed".format
    age, shown = (why(spark, script.warehouse, name, key) for name, key in (("age", "g=1"), ("shown", "k=1")))
    assert (age.row["age"], age.notes, age.inputs[0].inserted) == (2, (changed("age"),), 1)
    assert (shown.row["run_date"], shown.notes, shown.inputs[0].inserted) == (date(2024, 5, 2), (changed("shown"),), 0)
    above = why(spark, script.warehouse, "above", {"g": 1, "run_date": date(2024, 5, 2)})
    assert (above.row["v"], above.inputs[0].rows) == (6.0, 3)


#: Queries that read the time of day, where ``refresh.time`` cuts it off.
_BY_DAYS = {
    "open": "SELECT k, unix_timestamp(now()) - unix_timestamp(ts) AS age, now() AS at, localtimestamp() AS here FROM ev",
    "since": """SELECT g, count_if(ts > now() - INTERVAL 30 HOURS) AS n, max(datediff(HOUR, ts, now())) AS longest
        FROM ev GROUP BY g""",
    "kept": "SELECT k, current_timestamp() - INTERVAL 1 HOUR AS at FROM ev WHERE ts > now() - INTERVAL 2 DAYS",
    "rows": "SELECT d, count(*) AS n FROM a WHERE d > CAST(now() - INTERVAL 1 HOUR AS DATE) GROUP BY d",
    "bound": "SELECT d FROM a WHERE CAST(d AS TIMESTAMP) > now() - INTERVAL 1 HOUR",
    "ids": "SELECT d, now() AS at FROM a",
    "in_full": "SELECT k, now() AS at, CAST(rand(1) * 0 AS INT) AS zero FROM ev",
}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_view_may_take_the_start_of_the_day_for_the_time(
    spark: SparkSession, tmp_path: Path, clock: SetClock, zone: str
) -> None:
    script = Script(spark, tmp_path / "warehouse", clock)
    script.session._spark.conf.set("spark.sql.session.timeZone", zone)
    script.run(f"{_SOURCES}CREATE TABLE a (d DATE) TBLPROPERTIES ('delta.appendOnly' = 'true');")
    policies = {"in_full": ", 'refresh.policy' = 'full'"}
    for name, query in _BY_DAYS.items():
        script.run(f"CREATE MATERIALIZED VIEW {name} TBLPROPERTIES ('refresh.time' = 'day'{policies.get(name, '')}) AS {query}")
    views = script.warehouse.read().views
    assert {name for name, view in views.items() if view.plan.is_of_a_day} == {"open", "since", "kept", "rows"}
    assert {name for name, view in views.items() if view.strategy == "full"} == {"ids", "in_full"}
    draw, key = random.Random(zone), 0
    for hours in (0, 1, 8, 20, 3, 30):
        text, key = _changed(draw, key)
        script.run(f"{text} INSERT INTO a VALUES (DATE '2024-05-0{draw.randint(1, 4)}')")
        reports = _reports(script, spark, clock, hours=hours)
        midnight = start_of_day(zone, clock.now)
        assert {row[0] for row in script.rows("SELECT DISTINCT at FROM in_full")} <= {_local(midnight)}
        assert {row[0] for row in script.rows("SELECT DISTINCT at FROM open")} <= {_local(midnight)}
    assert reports["open"].reason is not None
    assert "the date has changed" in reports["open"].reason


def _local(instant: datetime) -> datetime:
    """A timestamp as PySpark gives it: in the time zone of this process."""
    return instant.astimezone().replace(tzinfo=None)


def test_an_edit_of_the_time_plans_a_view_again(script: Script, spark: SparkSession, clock: SetClock) -> None:
    query = "AS SELECT k, now() AS at FROM ev"
    script.run(f"INSERT INTO ev (k) VALUES (1); CREATE MATERIALIZED VIEW v {query}")
    assert script.warehouse.read().views["v"].strategy == "full"
    edited = f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ('refresh.time' = 'day') {query};"
    sync_project(spark, script.warehouse, build_project(parse_text(_SOURCES + edited, "p.sql")))
    assert _reports(script, spark, clock)["v"].is_backfill
    assert script.warehouse.read().views["v"].plan.is_of_a_day
    strict = edited.replace("'day'", "'day', 'refresh.policy' = 'incremental'")
    sync_project(spark, script.warehouse, build_project(parse_text(_SOURCES + strict, "p.sql")))
    with pytest.raises(RelstateError, match=r"v cannot be maintained incrementally: .*time-dependent"):
        list(EpochRunner(spark, script.warehouse, clock=clock).run())
    with pytest.raises(DeclarationError, match=r"'refresh.time' = 'hour' is unknown; it is one of run, day"):
        script.run(f"CREATE MATERIALIZED VIEW w TBLPROPERTIES ('refresh.time' = 'hour') {query}")


def test_a_time_zone_that_python_does_not_know(script: Script, clock: SetClock) -> None:
    script.session._spark.conf.set("spark.sql.session.timeZone", "CST")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT k, current_date() AS d FROM ev")
    assert script.warehouse.read().views["v"].strategy == "full"
    script.verify()
    by_days = "TBLPROPERTIES ('refresh.time' = 'day')"
    with pytest.raises(PlanError, match=r"view w: 'refresh.time' = 'day' needs a time zone that Python knows, and not CST"):
        script.run(f"CREATE MATERIALIZED VIEW w {by_days} AS SELECT k FROM ev WHERE ts > now() - INTERVAL 1 DAY")
