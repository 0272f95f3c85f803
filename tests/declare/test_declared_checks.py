"""Checks as they are declared: properties and constraints, read without Spark."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relstate_dagster.jobs.declare import materialized_view, parse_text
from relstate_dagster.jobs.declare.checks import checks_of
from relstate_dagster.state_lib.errors import DeclarationError


def declared(between: str) -> dict:
    (view,) = parse_text(f"CREATE MATERIALIZED VIEW v {between} AS SELECT 1 AS a", "views.sql")
    return {check.name: check for check in checks_of(view.properties, "v")}


def test_kinds_and_what_they_say():
    found = declared(
        """TBLPROPERTIES (
        'check.key.unique' = 'a, `b, c`', 'check.there.not_null' = '`we``ird`',
        check.known.accepted = "status IN ('x;y', NULL, concat('a', ')'))",
        'check.one.references' = 'a IN t(id)', 'check.two.references' = '(a, b) IN t(x, `y z`)',
        'check.three.references' = 't(id)', 'check.r.rows' = '1..1000', 'check.r1.rows' = '5', 'check.r2.rows' = '..9',
        'check.f.fresh' = '`t, s`, 2 hours', 'check.f.severity' = 'warn', 'check.key.blocking' = 'true',
        'check.e.expect' = 'a >= 0 -- of course')"""
    )
    assert found["key"].columns == ("a", "b, c")
    assert (found["key"].severity, found["key"].blocking) == ("error", True)
    assert found["there"].condition == "`we``ird` IS NOT NULL"
    assert "`status` IN ('x;y', NULL, concat('a', ')'))" in found["known"].condition
    assert [(c.columns, c.table, c.table_columns) for c in map(found.get, ("one", "two", "three"))] == [
        (("a",), "t", ("id",)),
        (("a", "b"), "t", ("x", "y z")),
        (("id",), "t", ("id",)),
    ]
    assert [(found[n].least_rows, found[n].most_rows) for n in ("r", "r1", "r2")] == [(1, 1000), (5, 5), (None, 9)]
    assert (found["f"].columns, found["f"].age, found["f"].severity) == (("t, s",), timedelta(hours=2), "warn")
    assert found["e"].condition == "a >= 0 -- of course"


def test_constraints_stand_in_the_column_list():
    text = """CREATE MATERIALIZED VIEW v (
        a COMMENT 'one', CONSTRAINT positive EXPECT (a >= 0 AND s <> ')') ON VIOLATION FAIL UPDATE,
        b, CONSTRAINT small EXPECT (b IN (1, 2)))
    AS SELECT 1 AS x, 2 AS y"""
    (view,) = parse_text(text)
    assert (view.column_names, view.column_comments) == (("a", "b"), {"a": "one"})
    positive, small = checks_of(view.properties, "v")
    assert (positive.condition, positive.severity, positive.blocking) == ("a >= 0 AND s <> ')'", "error", True)
    assert (small.condition, small.severity, small.blocking) == ("b IN (1, 2)", "warn", False)
    (bare,) = parse_text("CREATE MATERIALIZED VIEW v (CONSTRAINT c EXPECT (a > 0)) AS SELECT 1 AS a")
    assert bare.named_query == "SELECT 1 AS a"


@pytest.mark.parametrize(
    ("between", "said"),
    [
        ("(CONSTRAINT x EXPECT (a > 0) ON VIOLATION DROP ROW)", "a view holds what its query returns"),
        ("(CONSTRAINT x EXPECT (a > 0) ON VIOLATION IGNORE)", "after ON VIOLATION comes FAIL UPDATE"),
        ("(CONSTRAINT x EXPECT ())", "EXPECT needs a condition"),
        ("(CONSTRAINT x CHECK (a > 0))", "expected EXPECT"),
        ("(CONSTRAINT x EXPECT (a), CONSTRAINT x EXPECT (b))", "stands twice"),
        ("(CONSTRAINT x EXPECT (a)) TBLPROPERTIES ('check.x.expect' = 'b')", "stands in the column list and in TBLPROPERTIES"),
        ("(CONSTRAINT x EXPECT (a)) TBLPROPERTIES ('check.x.unique' = 'a')", r"a check x already \(expect\)"),
        ("'check.x.uniq' = 'a'", "there is no kind of check 'uniq'; there are unique, not_null"),
        ("'check.x' = 'a'", "there is no kind of check ''"),
        ("'check.x-y.unique' = 'a'", "'x-y' is no name of a check"),
        ("'check.matches_full_recompute.unique' = 'a'", "every view has a check matches_full_recompute"),
        ("'check.x.unique' = 'a', 'check.X.not_null' = 'a'", r"a check x already \(unique\)"),
        ("'check.x.severity' = 'warn'", "of a check that is not declared"),
        ("'check.x.unique' = 'a', 'check.x.severity' = 'bad'", "it is one of error, warn"),
        ("'check.x.unique' = 'a', 'check.x.blocking' = 'yes'", "it is one of true, false"),
        ("'check.x.unique' = 'a', 'check.x.severity' = 'warn', 'check.x.blocking' = 'true'", "a warning, which blocks nothing"),
        ("'check.x.unique' = ''", "write it as 'a, b'"),
        ("'check.x.unique' = 'a b'", "unexpected 'b'"),
        ("'check.x.not_null' = 'a, A'", "a column stands twice"),
        ("'check.x.accepted' = 's = 3'", 'write it as "status IN'),
        ("'check.x.accepted' = 's IN ()'", "no value is accepted"),
        ("'check.x.accepted' = 's IN (1) OR true'", "unexpected 'OR'"),
        ("'check.x.references' = 'a IN t'", "write it as 'customer IN customers"),
        ("'check.x.references' = 'a IN t(a, b)'", "1 columns are looked up in 2"),
        ("'check.x.rows' = '9..1'", "the first bound has to be the smaller one"),
        ("'check.x.rows' = '..'", "there is no bound"),
        ("'check.x.rows' = 'many'", "write it as '1..1000'"),
        ("'check.x.fresh' = 'ts'", "write it as 'ts, 2 hours'"),
        ("'check.x.fresh' = 'ts, 2 moons'", "'2 moons' is no length of time"),
        ("'check.x.expect' = ' '", "there is no condition"),
    ],
)
def test_what_is_refused_is_named_with_its_place(between, said):
    text = between if between.startswith("(") else f"TBLPROPERTIES ({between})"
    with pytest.raises(DeclarationError, match=said) as caught:
        declared(text)
    assert str(caught.value).startswith("views.sql:1: materialized view v")
    if "TBLPROPERTIES" in text and "CONSTRAINT" not in text:
        pairs = [pair.split("' = '") for pair in between[1:-1].split("', '")]
        with pytest.raises(DeclarationError, match=said):
            materialized_view(name="v", query="SELECT 1 AS a", properties=dict(pairs))


def test_plain_views_and_tables_take_none():
    with pytest.raises(DeclarationError, match="on materialized views only"):
        parse_text("CREATE VIEW v (CONSTRAINT c EXPECT (a > 0)) AS SELECT 1 AS a")
    with pytest.raises(DeclarationError, match=r"'check.c.unique' says nothing of a source"):
        parse_text("CREATE TABLE t (a INT) TBLPROPERTIES ('check.c.unique' = 'a')")
