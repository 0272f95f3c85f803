"""The DDL of views and sources, and every clause that is refused."""

from __future__ import annotations

import pytest

from relstate_dagster.jobs.declare import (
    CheckStatement,
    DropStatement,
    ExplainCreateStatement,
    ExplainStatement,
    OtherStatement,
    PlainView,
    RefreshStatement,
    SourceDeclaration,
    VerifyStatement,
    ViewDeclaration,
    parse_text,
)
from relstate_dagster.state_lib.errors import DeclarationError


def parse(text):
    (found,) = parse_text(text, "views.sql")
    return found


def test_view_with_every_clause():
    view = parse(
        """
        CREATE  MATERIALIZED
          VIEW IF NOT EXISTS busy (origin COMMENT 'from', flights)
        COMMENT 'it''s ' 'busy'
        USING delta
        PARTITIONED BY (origin) CLUSTER  BY (flights)
        TBLPROPERTIES ('refresh.policy' = 'full', dagster.group = 'air', 'x' = 3, flag true)
        AS SELECT origin, count(*) -- all of them
           FROM flights GROUP BY origin;
        """
    )
    assert view == ViewDeclaration(
        name="busy",
        query="SELECT origin, count(*) -- all of them\n           FROM flights GROUP BY origin",
        comment="it's busy",
        cluster_by=("flights",),
        partitioned_by=("origin",),
        properties={"refresh.policy": "full", "dagster.group": "air", "x": "3", "flag": "true"},
        if_not_exists=True,
        column_names=("origin", "flights"),
        column_comments={"origin": "from"},
        path="views.sql",
        line=2,
    )
    assert view.refresh_policy == "full"
    assert view.named_query.startswith("SELECT * FROM (\nSELECT origin")
    assert view.named_query.endswith(") AS _named(`origin`, `flights`)")


def test_the_plainest_view():
    view = parse("create materialized view v as with x as (select 1) select * from x")
    assert (view.name, view.query, view.refresh_policy) == ("v", "with x as (select 1) select * from x", "auto")
    assert view.named_query == view.query


def test_quoted_name_is_taken_where_it_is_plain():
    assert parse("CREATE MATERIALIZED VIEW `v_1` AS SELECT 1").name == "v_1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1", "OR REPLACE"),
        ("CREATE OR REFRESH MATERIALIZED VIEW v AS SELECT 1", "OR REFRESH"),
        ("CREATE MATERIALIZED VIEW v REFRESH POLICY AUTO AS SELECT 1", "REFRESH POLICY"),
        ("CREATE MATERIALIZED VIEW v SCHEDULE EVERY 1 HOUR AS SELECT 1", "SCHEDULE"),
        ("CREATE MATERIALIZED VIEW v CONSTRAINT c EXPECT (a > 0) AS SELECT 1", "CONSTRAINT"),
    ],
)
def test_refused_clause_is_named_with_place_and_remedy(text, words):
    with pytest.raises(DeclarationError, match=words) as caught:
        parse("SELECT 1;\n" * 0 + "\n\n" + text)
    assert str(caught.value).startswith("views.sql:3: ")
    assert "TBLPROPERTIES" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('refresh.policy'='sometimes') AS SELECT 1",
            "'auto', 'incremental', 'full', 'incremental, strict'",
        ),
        ("CREATE MATERIALIZED VIEW v TBLPROPERTIES ('refresh.polcy'='full') AS SELECT 1", "'refresh.polcy' is unknown"),
        (
            "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('state.extreme_rows'='0') AS SELECT 1",
            "no number of rows from 1 to 10000",
        ),
        ("CREATE MATERIALIZED VIEW v TBLPROPERTIES ('state.spare_rows'='many') AS SELECT 1", "leave it out for 1000"),
        ("CREATE MATERIALIZED VIEW v TBLPROPERTIES ('a'='1', 'a'='2') AS SELECT 1", "stands twice"),
        ("CREATE MATERIALIZED VIEW v TBLPROPERTIES ('a') AS SELECT 1", "no value"),
        ("CREATE MATERIALIZED VIEW v TBLPROPERTIES ('a'='1' AS SELECT 1", "not closed"),
        ("CREATE MATERIALIZED VIEW v COMMENT 'a' COMMENT 'b' AS SELECT 1", "COMMENT stands twice"),
        ("CREATE MATERIALIZED VIEW v COMMENT a AS SELECT 1", "expected a string"),
        ("CREATE MATERIALIZED VIEW v (a, A) AS SELECT 1, 2", "'A' stands twice"),
        ("CREATE MATERIALIZED VIEW v (a INT) AS SELECT 1", "names and comments only"),
        ("CREATE MATERIALIZED VIEW v LOCATION '/x' AS SELECT 1", "LOCATION is not taken"),
        ("CREATE MATERIALIZED VIEW v USING parquet AS SELECT 1", "only delta"),
        ("CREATE MATERIALIZED VIEW v", "expected AS"),
        ("CREATE MATERIALIZED VIEW v AS", "no query"),
        ("CREATE MATERIALIZED VIEW", "expected a name"),
        ("CREATE MATERIALIZED VIEW v BANANA AS SELECT 1", "'BANANA' is not taken"),
        ("DROP VIEW a b", "unexpected 'b'"),
    ],
)
def test_wrong_views(text, message):
    with pytest.raises(DeclarationError, match=message):
        parse(text)


@pytest.mark.parametrize("name", ["a.b", "`a.b`", "продажи", "`..`", "..", "../x", "`a/b`", "1a", "a-b", "x" * 129, "'a'"])
@pytest.mark.parametrize("form", ["CREATE MATERIALIZED VIEW {} AS SELECT 1", "CREATE TABLE {} (a INT)", "DROP TABLE {}"])
def test_names_are_plain_identifiers(name, form):
    with pytest.raises(DeclarationError, match=r"plain identifier|characters|expected a name"):
        parse(form.format(name))


def test_dotted_name_is_shown_whole():
    with pytest.raises(DeclarationError, match=r"'a\.b'"):
        parse("CREATE MATERIALIZED VIEW a.b AS SELECT 1")


def test_source_with_every_clause():
    source = parse(
        """CREATE TABLE IF NOT EXISTS orders (
             id BIGINT NOT NULL COMMENT 'the key',
             price DECIMAL(10, 2),
             lines ARRAY<STRUCT<sku: STRING, n: MAP<STRING, ARRAY<INT>>>>,
             `odd name` STRING,
             CONSTRAINT pk PRIMARY KEY (id, `odd name`) NOT ENFORCED)
           USING delta PARTITIONED BY (price) LOCATION 'data/orders'
           COMMENT 'orders' TBLPROPERTIES ('delta.appendOnly' = 'true')"""
    )
    assert isinstance(source, SourceDeclaration)
    assert [(c.name, c.type_text) for c in source.columns] == [
        ("id", "BIGINT"),
        ("price", "DECIMAL(10, 2)"),
        ("lines", "ARRAY<STRUCT<sku: STRING, n: MAP<STRING, ARRAY<INT>>>>"),
        ("odd name", "STRING"),
    ]
    assert source.primary_key == ("id", "odd name")
    assert source.columns_ddl.startswith("`id` BIGINT NOT NULL COMMENT 'the key', `price` DECIMAL(10, 2), `lines`")
    assert (source.location, source.comment, source.append_only) == ("data/orders", "orders", True)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT)", ("a",)),
        ("CREATE TABLE t (a INT, b INT, PRIMARY KEY (b, a))", ("b", "a")),
        ("CREATE TABLE t (PRIMARY KEY (a)) LOCATION '/x'", ("a",)),
        ("CREATE TABLE t (a INT) USING DELTA", ()),
        ("CREATE TABLE t(a INT)", ()),
    ],
)
def test_primary_keys(text, key):
    assert parse(text).primary_key == key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t AS SELECT 1", "'AS' is not taken"),
        ("CREATE TABLE t", "neither columns nor a LOCATION"),
        ("CREATE TABLE t ()", "neither columns nor a LOCATION"),
        ("CREATE OR REPLACE TABLE t (a INT)", "OR REPLACE"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", "PRIMARY KEY names b"),
        ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", "one PRIMARY KEY"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a, a))", "stands twice"),
        ("CREATE TABLE t (a INT, PRIMARY KEY ())", "at least one"),
        ("CREATE TABLE t (a INT, A INT)", "'A' stands twice"),
        ("CREATE TABLE t (a)", "no type"),
        ("CREATE TABLE t (a INT NOT NULL MASK f)", "'MASK' is not taken"),
        ("CREATE TABLE t (a INT, CONSTRAINT c UNIQUE (a))", "only PRIMARY KEY"),
        ("CREATE TABLE t (a INT CHECK ())", "needs a condition"),
        ("CREATE TABLE t (a INT CONSTRAINT c CHECK (a > 0), CONSTRAINT C CHECK (a > 1))", "constraint C stands twice"),
        ("CREATE TABLE t (_weight INT)", "reserved name"),
        ("CREATE TABLE t (a INT) USING hudi", "only delta, iceberg, csv"),
    ],
)
def test_wrong_sources(text, message):
    with pytest.raises(DeclarationError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE VIEW v AS SELECT 1", PlainView("v", "SELECT 1", path="views.sql")),
        (
            "CREATE OR REPLACE TEMPORARY VIEW v (a) AS SELECT 1",
            PlainView("v", "SELECT 1", or_replace=True, temporary=True, column_names=("a",), path="views.sql"),
        ),
        ("DROP TABLE IF EXISTS t", DropStatement("table", "t", True, "views.sql")),
        ("drop materialized view v", DropStatement("materialized view", "v", False, "views.sql")),
        ("DROP VIEW v", DropStatement("view", "v", False, "views.sql")),
        ("REFRESH", RefreshStatement((), "views.sql")),
        ("REFRESH VIEW a, b", RefreshStatement(("a", "b"), "views.sql")),
        ("REFRESH MATERIALIZED VIEW a", RefreshStatement(("a",), "views.sql")),
        ("REFRESH a", RefreshStatement(("a",), "views.sql")),
        ("REFRESH a, b", RefreshStatement(("a", "b"), "views.sql")),
        ("REFRESH FUNCTION f", OtherStatement("REFRESH FUNCTION f", "REFRESH", "views.sql")),
        ("VERIFY", VerifyStatement((), "views.sql")),
        ("VERIFY a, b", VerifyStatement(("a", "b"), "views.sql")),
        ("CHECK", CheckStatement((), "views.sql")),
        ("check view a, b", CheckStatement(("a", "b"), "views.sql")),
        ("EXPLAIN MATERIALIZED VIEW v", ExplainStatement("v", "views.sql")),
        ("REFRESH TABLE t", OtherStatement("REFRESH TABLE t", "REFRESH", "views.sql")),
        ("EXPLAIN SELECT 1", OtherStatement("EXPLAIN SELECT 1", "EXPLAIN", "views.sql")),
        ("insert into t values (1)", OtherStatement("insert into t values (1)", "INSERT", "views.sql")),
        ("MERGE INTO t USING s ON a = b WHEN MATCHED THEN DELETE", None),
    ],
)
def test_other_statements(text, expected):
    found = parse(text)
    assert found == expected if expected else (isinstance(found, OtherStatement) and found.keyword == "MERGE")


@pytest.mark.parametrize(("text", "is_query"), [("select 1", True), ("(SELECT 1)", True), ("DELETE FROM t", False)])
def test_queries_are_told_apart(text, is_query):
    assert parse(text).is_query is is_query


def test_explain_create_holds_the_view():
    found = parse("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1")
    assert isinstance(found, ExplainCreateStatement)
    assert found.view.query == "SELECT 1"


@pytest.mark.parametrize(
    ("column", "ddl", "properties"),
    [
        ("a INT DEFAULT 3", "`a` INT DEFAULT 3", {"delta.feature.allowColumnDefaults": "supported"}),
        (
            "a STRING DEFAULT concat('x, y', ')') NOT NULL COMMENT 'c'",
            "`a` STRING NOT NULL DEFAULT concat('x, y', ')') COMMENT 'c'",
            {"delta.feature.allowColumnDefaults": "supported"},
        ),
        ("a INT GENERATED  ALWAYS AS (b + 1) COMMENT 'c'", "`a` INT GENERATED  ALWAYS AS (b + 1) COMMENT 'c'", {}),
        ("a BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 1)", None, {}),
        ("a INT CHECK (a > 0 AND (a < 9))", "`a` INT", {"delta.constraints.check_1": "a > 0 AND (a < 9)"}),
        ("a STRUCT<b: INT COMMENT 'x', c: ARRAY<INT>> COMMENT 'y'", None, {}),
        ("a INT CONSTRAINT c CHECK (a > 0) NOT NULL", "`a` INT NOT NULL", {"delta.constraints.c": "a > 0"}),
    ],
)
def test_clauses_of_columns(column, ddl, properties):
    (source,) = parse_text(f"CREATE TABLE t ({column}, b INT)")
    assert source.columns_ddl == f"{ddl or column.replace('a ', '`a` ', 1)}, `b` INT"
    assert source.properties == properties
