"""What a view's text may be: nothing is run, read or published that is no query over sources and views."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.known_functions import ALLOWED, REFUSED
from relstate_dagster.jobs.planner.query_text import parse_query, relations_named
from relstate_dagster.state_lib.errors import PlanError, RelstateError
from tests.capabilities import is_newest
from tests.epoch.scripts import Script
from tests.operators.lab import RELATIONS
from tests.planner.examples import functions


@pytest.fixture(scope="module")
def catalyst(spark: SparkSession) -> Catalyst:
    return Catalyst(spark, RELATIONS, {"p": "SELECT k FROM t"})


def _said(message: str, *, before: str) -> str:
    """The refusal on the newest Spark, and on one before it.

    That may not have the statement, or call it otherwise.
    """
    return message if is_newest() else f"{message}|{before}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DELETE FROM t", "not DeleteFromTable"),
        ("SHOW TABLES", "not ShowTables"),
        ("SET spark.sql.ansi.enabled=false", "not SetCommand"),
        ("INSERT INTO t SELECT * FROM t", "not InsertIntoStatement"),
        ("WITH a AS (SELECT * FROM t) INSERT INTO t SELECT * FROM a", "not InsertIntoStatement"),
        ("FROM t INSERT INTO r SELECT k", "not InsertIntoStatement"),
        ("MERGE INTO t USING r ON true WHEN MATCHED THEN DELETE", "not MergeIntoTable"),
        ("CREATE TABLE x AS SELECT 1", "not CreateTableAsSelect"),
        ("CACHE TABLE x AS SELECT 1", "not CacheTableAsSelect"),
        ("EXPLAIN SELECT 1", "not Explain"),
        ("VACUUM t", "not VacuumTableCommand"),
        ("BEGIN SELECT 1; END", _said("not a script", before="SQL Scripting")),
        ("EXECUTE IMMEDIATE 'SELECT 1'", _said("not UnresolvedExecuteImmediate", before="not ExecuteImmediateQuery")),
        ("SELECT TRANSFORM(k) USING 'cat /etc/passwd' FROM t", "runs a program"),
        ("SELECT * FROM t VERSION AS OF 0", "a table at a fixed version"),
        ("SELECT * FROM STREAM t", _said("a stream", before="`STREAM` cannot be found")),
        ("SELECT * FROM parquet.`/x`", "by path"),
        ("SELECT k FROM t WHERE k IN (SELECT a FROM csv.`/x`)", "by path"),
        ("SELECT * FROM t JOIN LATERAL (SELECT * FROM text.`/x`)", "by path"),
        ("WITH x AS (SELECT * FROM delta.`/x`) SELECT * FROM x", "by path"),
        ("SELECT * FROM default.t", "several parts"),
        ("SELECT * FROM elsewhere", "`elsewhere` cannot be found"),
        ("SELECT * FROM read_files('/x')", "read_files"),
        ("SELECT * FROM table_changes('t', 0)", "table_changes"),
        ("SELECT * FROM python_worker_logs()", "environment"),
        ("SELECT reflect('java.lang.System', 'getenv', 'PATH')", "methods of Java"),
        ("SELECT `Reflect`('a', 'b')", "methods of Java"),
        ("SELECT system.builtin.java_method('a', 'b')", "methods of Java"),
        ("SELECT try_reflect('a', 'b')", "methods of Java"),
        ("VALUES (try_reflect('a', 'b'))", "methods of Java"),
        ("SELECT transform(array(1), x -> try_reflect('a', 'b'))", "methods of Java"),
        ("SELECT k, sum(k) OVER w FROM t WINDOW w AS (ORDER BY reflect('a', 'b'))", "methods of Java"),
        ("SELECT count(*) FILTER (WHERE reflect('a', 'b') = 'c') FROM t", "methods of Java"),
        ("SELECT k FROM t LIMIT length(reflect('a', 'b'))", "methods of Java"),
        ("SELECT * FROM t LATERAL VIEW explode(array(reflect('a', 'b'))) e AS y", "methods of Java"),
        ("SELECT IDENTIFIER('ref' || 'lect')('a', 'b')", "IDENTIFIER"),
        ("SELECT current_user()", "who runs the view"),
        ("SELECT current_user", "who runs the view"),
        ("SELECT k FROM t WHERE EXISTS (SELECT session_user FROM r)", "who runs the view"),
        ("SELECT current_database()", "who runs the view"),
        ("SELECT version()", "environment"),
        ("SELECT input_file_name() FROM t", "files lie"),
        ("SELECT from_protobuf(X'00', 'a', '/x')", "from a file"),
        ("SELECT elsewhere.default.f(1)", "no function of Spark's"),
        ("SELECT * FROM WHERE (", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_what_is_no_query_is_refused(catalyst: Catalyst, text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        catalyst.analyse(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("WITH a AS (SELECT * FROM t) SELECT * FROM a JOIN p USING (k)", ("t", "p")),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", ("t",)),
        ("FROM t |> WHERE k > 1 |> SELECT k", ("t",)),
        ("TABLE t", ("t",)),
        ("SELECT k FROM (SELECT k FROM t LIMIT ALL) LIMIT ALL", ("t",)),
        ("SELECT * FROM t, LATERAL explode(array(k)) UNION ALL VALUES (1, 2, 'a', 1.5, 3)", ("t",)),
        ("SELECT window, count(*) FROM e GROUP BY window(now(), '1 day')", ("e",)),
        ("SELECT (SELECT max(k) FROM r) FROM m WHERE g IN (SELECT g FROM e)", ("r", "m", "e")),
        ("SELECT * FROM range(3)", ()),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT * FROM n", ()),
    ],
)
def test_queries_are_read_without_being_run(catalyst: Catalyst, text: str, read: tuple[str, ...]) -> None:
    assert set(parse_query(catalyst.session, text).relations) == set(read)
    assert set(relations_named(text)) == set(read)
    catalyst.analyse(text)


def test_every_function_of_spark_is_on_one_side(spark: SparkSession) -> None:
    named = {f.name for f in functions(spark) if f.name[0].isalpha()}
    assert named - ALLOWED - REFUSED.keys() == set(), "a new function of Spark's: put it on one side"
    assert ALLOWED & REFUSED.keys() == set()
    assert not is_newest() or (ALLOWED | REFUSED.keys()) - named == set()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MATERIALIZED VIEW v AS {}",
        "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('refresh.policy' = 'full') AS {}",
        "CREATE OR REPLACE VIEW v AS {}",
        "EXPLAIN CREATE MATERIALIZED VIEW v AS {}",
    ],
)
def test_no_statement_runs_what_is_in_a_view(spark: SparkSession, tmp_path: Path, statement: str) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run("CREATE TABLE t (k INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1)")
    for text in ("DELETE FROM t", "SELECT try_reflect('java.lang.System', 'getProperty', 'user.dir') AS x"):
        assert isinstance(script.error(statement.format(text)), RelstateError)
    assert script.rows("SELECT * FROM t") == [(1,)]
    assert not script.warehouse.read().views


def test_the_page_on_limits_names_what_is_refused() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limitations.md").read_text()
    assert [name for name in REFUSED if f"`{name}`" not in page] == []
