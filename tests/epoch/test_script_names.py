"""What a script session makes known to Spark: the sources and views that statements name, as they are now."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import PlainViewEntry
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.script.named import named_in
from relstate_dagster.jobs.script.session import ScriptSession
from tests.epoch.scripts import Script

_SETUP = """
CREATE TABLE t (k INT, v INT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 10), (2, 20);
CREATE VIEW z AS SELECT k, v + 1 AS v FROM t;
CREATE VIEW a AS SELECT * FROM z WHERE k > 1;
CREATE MATERIALIZED VIEW m AS SELECT k, v FROM a;
CREATE MATERIALIZED VIEW other AS SELECT k FROM t;
"""


def _again(spark: SparkSession, script: Script) -> Script:
    """Another session on the same warehouse."""
    again = Script(spark, script.warehouse.root)
    again.warehouse = Warehouse(script.warehouse.root)
    return again


def _temporary(script: Script) -> set[str]:
    # By names alone: Spark's catalog would open every table that other tests have left, which takes minutes.
    return {row.tableName for row in script.session._spark.sql("SHOW TABLES").collect() if row.isTemporary}


def test_plain_views_over_plain_views_in_a_new_session(spark: SparkSession, script: Script) -> None:
    """They are listed by name: one was made known before the one that it reads."""
    script.begin(_SETUP)
    again = _again(spark, script)
    assert again.rows("SELECT * FROM a") == [(2, 21)]
    assert again.rows("SELECT * FROM m JOIN Z USING (k)") == [(2, 21, 21)]


def test_only_what_is_named_is_made_known(spark: SparkSession, script: Script) -> None:
    script.begin(_SETUP)
    again = _again(spark, script)
    assert again.rows("SELECT count(*) FROM m") == [(1,)]
    assert _temporary(again) == {"m"}
    again.rows("SELECT 1 FROM A")
    assert _temporary(again) == {"m", "a", "z"}
    names = {row[1] for row in again.rows("SHOW TABLES")}
    assert names >= {"t", "z", "a", "m", "other"}


def test_names_put_together_as_a_statement_runs(script: Script) -> None:
    script.begin(_SETUP)
    assert script.rows("SELECT * FROM IDENTIFIER('ot' || 'her')") == [(1,), (2,)]
    assert script.rows("EXECUTE IMMEDIATE 'SELECT v FROM ' || lower('M')") == [(21,)]


def test_views_of_the_user_read_what_is_there_now(script: Script) -> None:
    script.begin(_SETUP)
    script.run("CREATE TEMPORARY VIEW mine AS SELECT sum(v) AS s FROM m")
    script.run("CREATE TEMPORARY FUNCTION total() RETURNS BIGINT RETURN (SELECT sum(v) FROM m)")
    assert script.rows("SELECT *, total() FROM mine") == [(21, 21)]
    script.run("INSERT INTO t VALUES (3, 30); REFRESH")
    assert script.rows("SELECT total()") == [(52,)], "no statement names m any more"
    assert script.rows("SELECT * FROM mine") == [(52,)]


def test_what_another_session_drops_and_makes_again(spark: SparkSession, script: Script) -> None:
    script.begin(_SETUP)
    assert script.rows("SELECT * FROM other") == [(1,), (2,)]
    again = _again(spark, script)
    again.run("DROP MATERIALIZED VIEW other; CREATE TABLE other (x STRING); INSERT INTO other VALUES ('new')")
    assert script.rows("SELECT * FROM other") == [("new",)]
    again.run("DROP TABLE other; CREATE VIEW other AS SELECT 7 AS n")
    assert script.rows("SELECT * FROM other") == [(7,)]
    again.run("DROP VIEW other; CREATE MATERIALIZED VIEW other AS SELECT v FROM t")
    assert script.rows("SELECT * FROM other") == [(10,), (20,)]
    again.run("DROP MATERIALIZED VIEW other")
    assert "other" in str(script.error("SELECT * FROM other"))


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("SELECT * FROM `M`", ["m"]),
        ("INSERT INTO t SELECT k, v FROM other", ["t", "other"]),
        ("SELECT 'm' -- z", ["m", "t", "z"]),
        ("DESCRIBE a", ["t", "z", "a"]),
        ("SELECT mm, m1 FROM nothing", []),
        ("-- all\nshow views", ["t", "z", "a", "m", "other"]),
        ("SELECT * FROM IDENTIFIER('ot' || 'her')", ["t", "z", "a", "m", "other"]),
        ("EXECUTE IMMEDIATE 'SELECT * FROM ' || 'm'", ["t", "z", "a", "m", "other"]),
    ],
)
def test_names_are_found_by_words(script: Script, statement: str, named: list[str]) -> None:
    script.begin(_SETUP)
    state = script.warehouse.read()
    assert sorted(named_in(state, statement)) == sorted(named)
    looped = state.with_plain_view(PlainViewEntry("z", "SELECT * FROM a"))
    assert set(named_in(looped, "SELECT * FROM a")) >= {"a", "z"}, "what was made wrong by hand ends, too"


def test_a_session_is_made_of_its_warehouse(spark: SparkSession, script: Script) -> None:
    script.begin(_SETUP)
    session = ScriptSession(spark.newSession(), Warehouse(script.warehouse.root))
    assert [result.rows for result in session.run("SELECT k FROM m") if not isinstance(result, tuple)] == [[(2,)]]
