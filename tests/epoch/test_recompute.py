"""Epochs that compute all rows of a view, without state, and the way back."""

from __future__ import annotations

import random
import re
import signal
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.run.preview import Action, preview_run
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.state_lib.state_files import StateFiles
from tests.epoch.killed import run_in_process
from tests.epoch.scripts import Script
from tests.sizes import changed_sizes

_TABLES = """
CREATE TABLE t (k INT, g INT, v DOUBLE, PRIMARY KEY (k));
CREATE TABLE u (g INT, name STRING);
CREATE TABLE log (g INT, at INT, note STRING) TBLPROPERTIES ('delta.appendOnly' = 'true');
"""
#: Hidden keys, an outer join, windows, groups that are read again, a limit, rows that are equal, and a part without state.
_VIEWS = """
CREATE MATERIALIZED VIEW events AS SELECT g, at, note FROM log WHERE at >= 0
    UNION ALL SELECT g, CAST(v AS INT), 'of t' FROM t;
CREATE MATERIALIZED VIEW newest AS SELECT g, at, note FROM (
    SELECT *, row_number() OVER (PARTITION BY g ORDER BY at DESC, note) AS place FROM events) AS e WHERE place = 1;
CREATE MATERIALIZED VIEW wide AS SELECT e.g, e.at, e.note, u.name, n.at AS newest
    FROM events AS e LEFT JOIN u ON u.g = e.g JOIN newest AS n ON n.g = e.g;
CREATE MATERIALIZED VIEW sums AS SELECT name, count(*) AS n, sum(at) AS s, stddev(CAST(at AS DOUBLE)) AS d, max(note) AS m
    FROM wide GROUP BY name;
CREATE MATERIALIZED VIEW ranks AS SELECT g, at, note, sum(at) OVER (PARTITION BY g ORDER BY at, note) AS so_far FROM wide;
CREATE MATERIALIZED VIEW names AS SELECT name FROM wide UNION ALL SELECT name FROM u;
CREATE MATERIALIZED VIEW firsts AS SELECT * FROM sums ORDER BY s DESC, name LIMIT 3;
"""
_ROWS = """
INSERT INTO t SELECT id, id % 7, id FROM range(60);
INSERT INTO u SELECT id % 9, concat('n', id % 4) FROM range(12);
INSERT INTO log SELECT id % 8, id, concat('l', id % 3) FROM range(50);
"""
#: All rows are computed for any change, for none, and for those that change much.
_ALWAYS, _NEVER = {"recompute_values": 1, "recompute_share": 1e-9}, {"recompute_values": 10**9}
_LARGE = {"recompute_values": 20, "recompute_share": 0.2}


def _epoch(script: Script, spark: SparkSession, *, strict: bool = False, **sizes: float) -> dict[str, ViewReport]:
    with changed_sizes(**sizes):
        reports = list(EpochRunner(spark, script.warehouse).run(strict=strict))
    script.verify()
    return {report.view: report for report in reports}


def _moved(report: ViewReport) -> bool:
    return any(sum(rows) for rows in report.rows_in.values())


def _change(script: Script, draw: random.Random) -> None:
    k, g = draw.randrange(60), draw.randrange(9)
    script.run(
        draw.choice(
            [
                f"UPDATE t SET v = v + {draw.randrange(40)} WHERE k < {k}",
                f"DELETE FROM t WHERE k = {k}; INSERT INTO t VALUES ({100 + draw.randrange(10**6)}, {g}, {k})",
                f"UPDATE t SET g = {g} WHERE k = {k}",
                f"INSERT INTO u VALUES ({g}, 'n{draw.randrange(6)}'), ({g}, NULL); DELETE FROM u WHERE name = 'n{g}'",
                f"INSERT INTO log VALUES ({g}, {draw.randrange(90)}, 'new'), (NULL, {k}, NULL)",
            ]
        )
    )


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 12))])
def test_views_are_right_whichever_way_each_epoch_goes(spark: SparkSession, script: Script, seed: int) -> None:
    draw = random.Random(seed)
    script.begin(_TABLES + _ROWS + _VIEWS)
    ways = [_ALWAYS, _ALWAYS, _NEVER, _LARGE, _NEVER] if seed == 1 else []
    for sizes in ways or draw.choices([_ALWAYS, _NEVER, _LARGE], k=8):
        for _ in range(draw.randint(1, 3)):
            _change(script, draw)
        reports = _epoch(script, spark, strict=draw.random() < 0.3, **sizes)
        views = script.warehouse.read().views
        for name, report in reports.items():
            computes = next((line for line in report.stages if line.startswith(("compute", "recompute"))), "")
            assert (report.strategy == "full") == computes.startswith("recompute: all rows less those of the view, no state")
            if report.strategy == "full":
                assert views[name].unfilled
                assert "recomputed: " in str(report.reason)
        if sizes is _ALWAYS:
            # Rows of a source have ids that it gave them; what has no state has nothing to save.
            moved = {name for name, report in reports.items() if _moved(report)} - {"events", "names"}
            assert {reports[name].strategy for name in moved} <= {"full"}
        if sizes is _NEVER:
            assert all(report.strategy == "incremental" for report in reports.values())
            assert not any(views[name].unfilled for name in reports if _moved(reports[name]))
    for view in views.values():
        assert script.warehouse.read().views[view.name].generation == view.generation


def test_a_recomputed_view_has_no_state_until_changes_are_small(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES + _ROWS + _VIEWS)
    script.run("UPDATE t SET v = v + 1")
    project = build_project(parse_text(_TABLES + _VIEWS, "p.sql"))
    with changed_sizes(**_LARGE):
        looked_at = {one.view: one for one in preview_run(script.warehouse, project, most_tasks=2)}
    assert looked_at["newest"].action is Action.FOLLOW, "how much changes below it is not known yet"
    first = _epoch(script, spark, **_LARGE)
    assert {name for name, report in first.items() if report.strategy == "full"} >= {"newest", "wide", "ranks"}
    assert "values have changed" in str(first["wide"].reason)
    unfilled = script.warehouse.read().views["wide"].unfilled
    script.run("INSERT INTO log VALUES (1, -1, 'left out by events')")
    nothing = _epoch(script, spark, **_LARGE)["wide"]
    assert (nothing.skipped, nothing.spark_jobs) == (True, 0), "no state is filled for nothing"
    assert script.warehouse.read().views["wide"].unfilled == unfilled
    small = "UPDATE t SET v = v + 1 WHERE k = 3"
    script.run(small)
    second = _epoch(script, spark, **_LARGE)
    (line,) = [line for line in second["wide"].stages if line.startswith("recompute")]
    assert "state is filled" in line
    assert "few values have changed again" in line
    assert second["wide"].strategy == "incremental"
    script.run(small)
    third = _epoch(script, spark, **_LARGE)
    assert not any(line.startswith("recompute") for line in third["wide"].stages)


def test_rows_that_do_not_change_are_not_in_the_change_set(spark: SparkSession, script: Script) -> None:
    script.begin(
        """
        CREATE TABLE t (k INT, g INT, v DOUBLE, PRIMARY KEY (k));
        INSERT INTO t SELECT id, id % 5, CAST(id % 97 AS DOUBLE) / 7 * pow(10, id % 13 - 6) FROM range(3000);
        CREATE MATERIALIZED VIEW sums AS
            SELECT g, sum(v) AS s, avg(v) AS a, stddev(v) AS d, count(*) AS n
            FROM t GROUP BY g;
        CREATE MATERIALIZED VIEW shares AS SELECT k, g, v / sum(v) OVER (PARTITION BY g) AS share FROM t;
        """
    )
    for sizes in (_ALWAYS, _ALWAYS, _NEVER, _NEVER, _ALWAYS):
        script.run("UPDATE t SET v = v + 1e-7 WHERE k = 8")
        reports = _epoch(script, spark, **sizes)
        assert (reports["sums"].rows_inserted, reports["sums"].rows_deleted) == (1, 1)
        assert 0 < reports["shares"].rows_inserted <= 600


def test_a_view_without_state_that_stays_the_same_is_not_committed(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES + _ROWS + _VIEWS)
    for name, is_skipped in (("first", False), ("second", True)):
        script.run(f"INSERT INTO u VALUES (77, '{name}')")
        reports = _epoch(script, spark, **_ALWAYS)
        assert any(line.startswith("recompute") for line in reports["wide"].stages)
        assert (reports["wide"].skipped, reports["wide"].strategy) == (is_skipped, "full")
        assert script.warehouse.read().views["wide"].unfilled
    assert reports["ranks"].spark_jobs == 0, "nothing below it has moved"
    script.run("UPDATE t SET v = v + 1 WHERE k < 9")
    _epoch(script, spark, **_NEVER)


@pytest.mark.parametrize("place", ["before_state_commit", "after_state_commit", "before_publish", "before_complete"])
def test_a_killed_epoch_without_state_is_repaired(
    spark: SparkSession, script: Script, jvm: SparkSession | None, place: str
) -> None:
    # The first view that commits, so the one that is killed, has state.
    script.begin(
        _TABLES + _ROWS + "CREATE MATERIALIZED VIEW named AS SELECT t.k, t.v, u.name FROM t LEFT JOIN u ON u.g = t.g;"
        "CREATE MATERIALIZED VIEW sums AS SELECT name, count(*) AS n, sum(v) AS s, max(v) AS m FROM named GROUP BY name"
    )
    script.run("INSERT INTO u VALUES (1, 'n1')")
    always = ", ".join(f"{name} = {value}" for name, value in _ALWAYS.items())
    killed = run_in_process(script.warehouse.root, place, jvm, RELSTATE_SIZING=always)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    _epoch(script, spark, **_NEVER)
    view, is_committed = script.warehouse.read().views["named"], place != "before_state_commit"
    assert bool(view.unfilled) == is_committed, "a commit that is found is finished as it was made"
    files = StateFiles(script.warehouse.state_path(view)).at(None)
    rows = {table.table_id: sum(f.rows for f in files if f.partition["table_id"] == table.table_id) for table in view.tables}
    assert all((rows[table.table_id] == 0) == is_committed for table in view.tables[:-1]), rows
    script.run("UPDATE t SET v = v + 1 WHERE k < 9; DELETE FROM u WHERE name = 'n1'")
    _epoch(script, spark, **_NEVER)
    script.run("UPDATE t SET g = g + 1 WHERE k < 9")
    _epoch(script, spark, **_NEVER)


def test_a_view_that_is_to_follow_changes_again_fills_its_state(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES + _ROWS + _VIEWS)
    script.run("UPDATE t SET v = v + 1")
    _epoch(script, spark, **_ALWAYS)
    catalog = script.warehouse.catalog
    for name in ("wide", "sums", "ranks"):
        view = catalog.read().views[name]
        assert view.unfilled
        catalog.update(lambda state, view=view: state.with_view(replace(view, properties={"refresh.policy": "incremental"})))
    script.run("UPDATE t SET v = v + 1 WHERE k < 9")
    reports = _epoch(script, spark, **_ALWAYS)
    assert {name for name, report in reports.items() if any(line.startswith("fill: ") for line in report.stages)} == {
        "wide",
        "sums",
        "ranks",
    }
    script.run("UPDATE t SET v = v + 1 WHERE k = 9; DELETE FROM u WHERE g = 3")
    assert not any(line.startswith("fill: ") for report in _epoch(script, spark).values() for line in report.stages)


def test_groups_that_are_computed_from_about_all_rows_are_computed_from_all(spark: SparkSession, script: Script) -> None:
    script.begin(
        "CREATE TABLE d (k INT, g INT, x DOUBLE, PRIMARY KEY (k)); INSERT INTO d SELECT id, id % 10, id * 0.1 FROM range(200);"
        "CREATE MATERIALIZED VIEW spread AS SELECT g, stddev(x) AS s, max(x) AS m, count(*) AS n FROM d GROUP BY g;"
        "CREATE MATERIALIZED VIEW few AS SELECT n, count(*) AS c FROM spread GROUP BY n"
    )
    limits = {"recompute_values": 20, "recompute_share": 0.3}
    ways = [
        ("INSERT INTO d SELECT 1000 + id, id, 0.5 FROM range(3)", "incremental"),
        ("UPDATE d SET x = x + 0.1 WHERE k < 20", "full"),
        ("UPDATE d SET x = x + 0.1 WHERE k BETWEEN 20 AND 29", "full"),
        ("DELETE FROM d WHERE k = 5", "incremental"),  # which fills the state
    ]
    for change, strategy in ways:
        script.run(change)
        report = _epoch(script, spark, **limits)["spread"]
        assert report.strategy == strategy, (change, report.stages)
    assert script.warehouse.read().views["spread"].unfilled == ()


def test_rows_that_a_view_had_count_for_nothing(spark: SparkSession, script: Script) -> None:
    """The rows that a view has now decide, and not those of its log."""
    script.run("""
        CREATE TABLE rates (name STRING, rate INT, PRIMARY KEY (name));
        CREATE TABLE amounts (k INT, name STRING, amount INT, PRIMARY KEY (k));
        INSERT INTO rates VALUES ('a', 1), ('b', 2), ('c', 3);
        INSERT INTO amounts SELECT id, substr('abc', 1 + id % 3, 1), id FROM range(1, 61);
        CREATE MATERIALIZED VIEW prices AS SELECT k, name, sum(amount * rate) AS price FROM amounts JOIN rates USING (name)
            GROUP BY k, name;
        CREATE MATERIALIZED VIEW sums AS SELECT name, sum(price) AS price, max(price) AS most FROM prices GROUP BY name;
        REFRESH
    """)
    # The log is rewritten after each epoch, with the rows of all of them.
    sizes = {"recompute_values": 20, "compaction_growth": 1, "compaction_spare_rows": 0}
    for epoch in range(5):
        script.run("UPDATE rates SET rate = rate + 1")
        found = {view: "\n".join(report.stages) for view, report in _epoch(script, spark, **sizes).items()}
        # The first change after a build is followed: there is no epoch to expect its rows from.
        assert ("recompute: " in found["prices"]) == (epoch > 0)
        assert epoch == 0 or "about 120 rows come and go in the view, which has 60" in found["prices"]
        changed, all_values = map(int, re.findall(r"(\d+) of (\d+) values have changed", found["sums"])[0])
        assert changed == 2 * all_values  # an updated row counts twice
