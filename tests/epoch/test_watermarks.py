"""``source.watermark``: closed groups leave the state, late rows are counted, and views equal their queries all the same."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, sync_project
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.state_lib.constants import TABLE_ID
from relstate_dagster.state_lib.state_files import StateFiles
from tests.epoch.killed import in_process
from tests.epoch.scripts import Script
from tests.sizes import Resized

_WATERMARK = "'source.watermark' = 'ts - INTERVAL 10 MINUTES'"
_EVENTS = (
    f"CREATE TABLE events (ts TIMESTAMP, who INT, v INT, x DOUBLE) TBLPROPERTIES ('delta.appendOnly' = 'true', {_WATERMARK})"
)
_VIEWS = {
    "windows": "SELECT window(ts, '10 minutes') AS w, who, count(*) AS n, sum(x) AS s, max(v) AS m FROM events GROUP BY 1, 2",
    "slides": "SELECT window.start, count(*) AS n, min(v) AS lo FROM events WHERE v > 0 "
    "GROUP BY window(ts, '10 minutes', '5 minutes')",
    "hours": "SELECT date_trunc('HOUR', ts) AS h, count(DISTINCT who) AS n FROM events GROUP BY 1",
    "days": "SELECT CAST(ts AS DATE) AS d, who, avg(v) AS a FROM events GROUP BY 1, 2 HAVING count(*) > 1",
    "seen": "SELECT DISTINCT ts, who FROM events",
    "over": "SELECT n, count(*) AS of FROM (SELECT CAST(ts AS DATE) AS d, count(*) AS n FROM events GROUP BY 1) GROUP BY n",
}


def _day(day: int, hours: range = range(0, 24, 4)) -> str:
    rows = (f"(TIMESTAMP '2024-02-{day:02} {h:02}:{m:02}:00', {h % 3}, {h * m % 7}, {h}.1)" for h in hours for m in (0, 17, 34))
    return f"INSERT INTO events VALUES {', '.join(rows)}; REFRESH"


def _state_rows(script: Script, view: str) -> int:
    """Rows in all state tables of a view but its own."""
    entry = script.warehouse.read().views[view]
    own = {table.table_id for table in entry.tables[:-1]}
    return sum(f.rows for f in StateFiles(script.warehouse.state_path(entry)).at(None) if f.partition[TABLE_ID] in own)


def _late_rows(spark: SparkSession, script: Script, text: str) -> dict[str, int]:
    """What the reports of the epoch after a change say."""
    script.run(text.removesuffix("; REFRESH"))
    reports = EpochRunner(spark, script.warehouse).run()
    return {report.view: report.late_rows for report in reports if report.late_rows}


def _compact(spark: SparkSession, script: Script) -> None:
    list(EpochRunner(spark, script.warehouse).compact())


def test_windows_that_are_closed_leave_the_state_and_late_rows_find_them_again(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(_EVENTS)
    for name, query in _VIEWS.items():
        script.run(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    sizes = []
    for day in (1, 2, 3):
        script.run(_day(day))
        _compact(spark, script)
        sizes.append({name: _state_rows(script, name) for name in _VIEWS if name != "over"})
    assert sizes[2] == sizes[1] == sizes[0], "what days leave behind does not add up"
    script.verify()
    # Two rows of windows that are gone, one of a window that never was, and one that is not late.
    late = _late_rows(
        spark,
        script,
        "INSERT INTO events VALUES (TIMESTAMP '2024-02-01 04:03:00', 1, 5, 0.3), (TIMESTAMP '2024-02-01 04:05:00', 2, 9, 0.7),"
        "(TIMESTAMP '2024-02-02 23:59:59.999999', 7, 1, 0.1), (TIMESTAMP '2024-02-03 20:39:00', 1, 1, 0.1),"
        "(NULL, 1, 1, 1); REFRESH",
    )
    assert late == {"windows": 3, "slides": 6, "hours": 3, "days": 3, "seen": 3, "over": 3}
    script.verify()
    # Again into the same ones, whose state is there now.
    assert (
        _late_rows(spark, script, "INSERT INTO events VALUES (TIMESTAMP '2024-02-01 04:03:00', 1, 5, 0.3); REFRESH")["windows"]
        == 1
    )
    script.verify()
    _compact(spark, script)
    assert {name: _state_rows(script, name) for name in sizes[2]}["windows"] <= sizes[2]["windows"] + 6
    script.run(f"{_day(4)}; VERIFY")


def test_rows_that_are_updated_and_deleted_late(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing asks that a source only appends: what changes in a window that is gone is found there, before and after."""
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        "CREATE TABLE t (k INT, day DATE, n BIGINT, v DOUBLE, PRIMARY KEY (k)) TBLPROPERTIES ('source.watermark' = 'n - 10');"
        "CREATE MATERIALIZED VIEW a AS SELECT n, stddev(v) AS s, count(*) AS c, max(v) AS m FROM t GROUP BY n;"
        "CREATE MATERIALIZED VIEW b AS SELECT c, count(*) AS of FROM a GROUP BY c;"
        "INSERT INTO t SELECT id, DATE'2024-01-01' + INT(id), id DIV 3, id * 0.1 FROM range(120); REFRESH"
    )
    _compact(spark, script)
    assert _state_rows(script, "a") == 11 + 33
    script.run("UPDATE t SET v = v + 1 WHERE k IN (0, 100, 119); DELETE FROM t WHERE k IN (3, 4, 5, 6); REFRESH; VERIFY")
    _compact(spark, script)
    script.run(
        "UPDATE t SET n = n + 30 WHERE k IN (1, 9, 10); INSERT INTO t VALUES (500, NULL, NULL, 1), (4, NULL, 1, 2);"
        "REFRESH; VERIFY"
    )
    script.run("DELETE FROM t WHERE n < 20; REFRESH; VERIFY")
    # The watermark has not gone back, and another column may be declared; both have closed groups.
    other = "CREATE TABLE t (k INT, day DATE, n BIGINT, v DOUBLE, PRIMARY KEY (k)) TBLPROPERTIES ('source.watermark' = '`day`')"
    views = "; ".join(f"CREATE MATERIALIZED VIEW {name} AS {v.query}" for name, v in script.warehouse.read().views.items())
    before = script.warehouse.read().views["a"].epochs
    sync_project(spark, script.warehouse, build_project(parse_text(f"{other}; {views}")))
    assert script.warehouse.read().views["a"].epochs == before, "another watermark rebuilds nothing"
    script.run("INSERT INTO t VALUES (501, NULL, 2, 5), (502, NULL, 30, 5); REFRESH; VERIFY")
    _compact(spark, script)
    without = other.partition(" TBLPROPERTIES")[0]
    sync_project(spark, script.warehouse, build_project(parse_text(f"{without}; {views}")))
    assert script.warehouse.read().sources["t"].watermark is None
    script.run("INSERT INTO t VALUES (503, NULL, 2, 5), (504, NULL, 3, 5); DELETE FROM t WHERE k = 501; REFRESH; VERIFY")
    EpochRunner(spark, script.warehouse).run(full_refresh=True)


def test_large_changes_with_late_rows(spark: SparkSession, tmp_path: Path, resized: Resized) -> None:
    """As Spark computes them: nothing is held by the driver."""
    script = Script(spark, tmp_path / "warehouse")
    script.run(f"{_EVENTS}; CREATE MATERIALIZED VIEW windows AS {_VIEWS['windows']}; {_day(1)}; {_day(2)}")
    _compact(spark, script)
    resized(driver_change_bytes=0)
    assert _late_rows(spark, script, _day(1, range(2, 12, 2))) == {"windows": 15}
    assert _late_rows(spark, script, _day(3)) == {}
    script.verify()


def test_a_run_that_dies_after_closed_groups_have_left_the_state(
    spark: SparkSession, tmp_path: Path, jvm: SparkSession | None
) -> None:
    """The next one knows that they may be gone, though the epoch in which they went was never completed."""
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        f"{_EVENTS}; CREATE MATERIALIZED VIEW seen AS {_VIEWS['seen']}; CREATE MATERIALIZED VIEW days AS {_VIEWS['days']}"
    )
    script.run(f"{_day(1)}; {_day(2)}")
    # So many more rows that the state is rewritten.
    at = "TIMESTAMP'2024-02-03' + MAKE_DT_INTERVAL(0, 0, INT(id), 0)"
    many = f"INSERT INTO events SELECT {at}, id, 1, 1 FROM range(30000); REFRESH"
    killed = in_process(many, script.warehouse.root, "before_complete", jvm)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert _state_rows(script, "seen") == 30_001, "all but one of those before have left"
    assert not script.rows("SELECT * FROM seen WHERE who = 29999")
    assert _late_rows(spark, script, _day(1, range(1, 3)))["seen"] == 6
    script.verify()


def test_explain_says_what_leaves_the_state(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        f"{_EVENTS}; CREATE MATERIALIZED VIEW windows AS {_VIEWS['windows']}"
        "; CREATE MATERIALIZED VIEW g AS SELECT v, count(*) FROM events GROUP BY v"
    )
    ((explained,),) = script.rows("EXPLAIN MATERIALIZED VIEW windows")
    assert f"once they are closed:\n  Aggregate by (window, who): events has {_WATERMARK}" in explained
    ((explained,),) = script.rows("EXPLAIN MATERIALIZED VIEW g")
    assert "closed" not in explained


_OTHERS = "TBLPROPERTIES ('source.watermark' = {})"


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("'ts + INTERVAL 1 DAY'", "'ts + INTERVAL 1 DAY' is a column less a delay"),
        ("'ts - INTERVAL 1 YEAR'", "is a column less a delay, as in 'ts - INTERVAL 10 MINUTES'"),
        ("'ts - INTERVAL 0 DAYS'", "is a column less a delay"),
        ("''", "is a column less a delay"),
        ("'other - 1'", "is about column other, which the source does not have"),
        ("'x - 1'", "is about column x, which is DOUBLE; it needs"),
        ("'ts - 10'", "from ts, TIMESTAMP, an interval, as in INTERVAL 10 MINUTES is subtracted"),
        ("'v - INTERVAL 1 DAY'", "from v, INT, a number is subtracted"),
        ("'d - INTERVAL 1 HOUR'", "from d, a DATE, whole days are subtracted"),
    ],
)
def test_what_is_no_watermark_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, declared: str, said: str
) -> None:
    script = Script(spark, tmp_path / "warehouse")
    error = script.error(f"CREATE TABLE e (ts TIMESTAMP, v INT, x DOUBLE, d DATE) {_OTHERS.format(declared)}")
    assert said in str(error)
    assert not script.warehouse.read().sources
    assert not (tmp_path / "warehouse" / "sources" / "e").exists()


def test_a_watermark_of_changes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    error = script.error(
        f"CREATE TABLE u (k INT, ts TIMESTAMP, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert', {_WATERMARK})"
    )
    assert "'source.watermark' says nothing of a source of 'source.kind' = 'upsert'" in str(error)


@pytest.mark.parametrize("declared", ["`odd``name` - 5", "ODD - 5", "odd", "odd - INTERVAL '2 days'", "odd - interval 2 days"])
def test_watermarks_that_are_understood(spark: SparkSession, tmp_path: Path, declared: str) -> None:
    name, data_type = ("odd`name" if "name" in declared else "odd"), ("DATE" if "2 days" in declared else "INT")
    script = Script(spark, tmp_path / "warehouse")
    quoted = f"`{name.replace('`', '``')}`"
    script.run(
        f"CREATE TABLE e ({quoted} {data_type}, v INT) TBLPROPERTIES ('source.watermark' = \"{declared}\");"
        f"CREATE MATERIALIZED VIEW c AS SELECT {quoted} AS o, count(*) AS n FROM e GROUP BY 1;"
        + (
            "INSERT INTO e SELECT DATE'2024-01-01' + INT(id), 1 FROM range(30); REFRESH"
            if data_type == "DATE"
            else "INSERT INTO e SELECT id, 1 FROM range(30); REFRESH"
        )
    )
    _compact(spark, script)
    delay = 0 if declared == "odd" else 2 if data_type == "DATE" else 5
    assert _state_rows(script, "c") == delay + 1
    script.verify()
