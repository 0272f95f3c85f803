"""`relstate sql`'s statements, end to end."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch import view_epoch
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.state_lib.errors import DeclarationError
from tests.epoch.scripts import Script

_TABLES = """
CREATE TABLE t (k INT, g INT, v DECIMAL(10,2), PRIMARY KEY (k));
CREATE TABLE ev (g INT, s STRING) TBLPROPERTIES ('delta.appendOnly' = 'true');
INSERT INTO t VALUES (1, 1, 1.5), (2, 1, 2.5), (3, 2, 7);
INSERT INTO ev VALUES (1, 'x'), (1, 'x');
"""


def test_the_life_of_a_view(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE VIEW positive AS SELECT * FROM t WHERE v > 0")
    script.run("CREATE MATERIALIZED VIEW sums AS SELECT g, count(*), sum(v) AS s FROM positive GROUP BY g")
    assert script.rows("SELECT * FROM sums") == [(1, 2, Decimal("4.00")), (2, 1, Decimal("7.00"))]
    script.run("UPDATE t SET v = v + 1 WHERE k = 3; DELETE FROM t WHERE g = 1")
    # As of the last complete epoch.
    assert script.rows("SELECT * FROM sums") == [(1, 2, Decimal("4.00")), (2, 1, Decimal("7.00"))]
    script.run("REFRESH")
    assert script.rows("SELECT * FROM sums") == [(2, 1, Decimal("8.00"))]
    script.verify()


def test_only_the_table_that_a_statement_changes_must_not_be_a_view(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW v AS SELECT g, sum(v) AS s FROM t GROUP BY g")
    script.run("UPDATE t SET v = v + 1 WHERE k = 3; DELETE FROM t AS v WHERE v.k = 1; REFRESH")
    script.verify()
    for statement in ("UPDATE v SET s = 1", "INSERT INTO v(g, s) VALUES (1, 2)", "DELETE FROM `V`", "TRUNCATE TABLE v"):
        with pytest.raises(DeclarationError, match="v is a view: its rows follow from its query"):
            script.run(statement)


def test_a_view_over_views_follows_to_the_epoch_its_upstream_has_reached(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW a AS SELECT g, count(*) AS n FROM t GROUP BY g")
    script.run("INSERT INTO t VALUES (9, 9, 9)")
    # `a` is not refreshed by this; `b` starts at the epoch of `a`, not at the newest version of `t`.
    script.run("CREATE MATERIALIZED VIEW b AS SELECT a.n, ev.s FROM a JOIN ev ON a.g = ev.g")
    assert script.rows("SELECT * FROM b") == [(2, "x"), (2, "x")]
    assert script.rows("SELECT g FROM a") == [(1,), (2,)]
    script.run("REFRESH VIEW b")
    assert script.rows("SELECT g FROM a") == [(1,), (2,)]
    script.run("INSERT INTO ev VALUES (9, 'nine')")
    script.run("REFRESH VIEW a")
    script.run("REFRESH VIEW b")
    assert script.rows("SELECT * FROM b") == [(1, "nine"), (2, "x"), (2, "x")]
    script.verify()


def test_equal_rows_of_a_keyless_view_are_kept_apart(script: Script) -> None:
    script.run("CREATE TABLE m (s STRING); INSERT INTO m VALUES ('a'), ('a'), ('b')")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT s FROM m")
    script.run("INSERT INTO m VALUES ('a'), ('c'); DELETE FROM m WHERE s = 'b'; REFRESH")
    assert script.rows("SELECT * FROM v") == [("a",), ("a",), ("a",), ("c",)]
    script.run("DELETE FROM m WHERE s = 'a'; INSERT INTO m VALUES ('a'); REFRESH")
    assert script.rows("SELECT * FROM v") == [("a",), ("c",)]
    script.verify()


def test_full_refresh_where_the_policy_asks_for_it(script: Script) -> None:
    script.begin(_TABLES)
    script.run(
        "CREATE MATERIALIZED VIEW f TBLPROPERTIES ('refresh.policy' = 'full') AS SELECT g, count(*) AS n FROM t GROUP BY g"
    )
    script.run("CREATE MATERIALIZED VIEW over_f AS SELECT n, count(*) AS k FROM f GROUP BY n")
    script.run("INSERT INTO t VALUES (4, 5, 0); DELETE FROM t WHERE k = 1; REFRESH")
    assert script.rows("SELECT * FROM f") == [(1, 1), (2, 1), (5, 1)]
    assert script.rows("SELECT * FROM over_f") == [(1, 3)]
    ((text,),) = script.rows("EXPLAIN MATERIALIZED VIEW f")
    assert text.startswith("view f: full, because the view's refresh.policy is full")
    script.verify()


def test_a_full_refresh_is_left_out_where_the_views_it_reads_have_not_changed(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    full_query = view_epoch.full_query

    def noted(inputs: EpochInputs, session: SparkSession) -> DataFrame:
        asked.append(inputs.view.name)
        return full_query(inputs, session)

    monkeypatch.setattr(view_epoch, "full_query", noted)
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW groups AS SELECT DISTINCT g FROM t")
    script.run("CREATE MATERIALIZED VIEW f TBLPROPERTIES ('refresh.policy' = 'full') AS SELECT max(g) AS m FROM groups")
    runner = EpochRunner(script.session._spark, script.warehouse)
    for change, changed in (
        ("UPDATE t SET v = v + 1", False),
        ("INSERT INTO t VALUES (9, 9, 9)", True),
        ("UPDATE t SET v = 0", False),
    ):
        script.run(change)
        asked.clear()
        reports = {report.view: report for report in list(runner.run())}
        assert asked == (["f"] if changed else [])
        assert (not reports["f"].skipped) is changed
    assert script.rows("SELECT * FROM f") == [(9,)]
    script.verify()


def test_nothing_changed_runs_no_spark_job(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW v AS SELECT g, sum(v) AS s FROM t GROUP BY g")
    spark = script.session._spark
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("idle", "an epoch with nothing to do")
    script.run("REFRESH")
    assert list(tracker.getJobIdsForGroup("idle")) == []


def test_drop_and_create_again(script: Script) -> None:
    script.begin(_TABLES)
    for _ in range(2):
        script.run("CREATE MATERIALIZED VIEW v AS SELECT g FROM t; REFRESH")
        assert len(script.rows("SELECT * FROM v")) == 3
        script.run("DROP MATERIALIZED VIEW v; DROP MATERIALIZED VIEW IF EXISTS v")
    script.run("DROP TABLE t; DROP TABLE ev; CREATE TABLE t (x STRING)")
    assert script.rows("SELECT * FROM t") == []


def test_explain_says_if_and_how(script: Script) -> None:
    script.begin(_TABLES)
    ((text,),) = script.rows("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT g, min(v) AS lo FROM t GROUP BY g")
    assert text.startswith("view v: incremental")
    assert "min(v): extreme state, key g, _value_0 prefix 1" in text
    ((text,),) = script.rows("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT k, now() AS d FROM t")
    assert "full, because" in text
    assert "[time-dependent]" in text
    assert script.warehouse.read().views == {}


def test_state_is_a_delta_table_that_explains_itself(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW v AS SELECT g, sum(v) AS s, count(v) AS n FROM t GROUP BY g")
    view = script.warehouse.read().views["v"]
    # Both aggregate calls have one table of value state; the other is the view's own.
    assert [t.schema.label for t in view.tables] == ["sum(v), count(v)", "mv"]
    state = script.session._spark.read.format("delta").load(script.warehouse.state_path(view))
    assert state.columns[:5] == ["table_id", "vnode", "key", "epoch", "weight"]
    assert {r.table_id for r in state.select("table_id").distinct().collect()} == {t.table_id for t in view.tables}
