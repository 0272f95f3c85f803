"""A project as a whole: order, and the errors that only show between declarations."""

from __future__ import annotations

import itertools

import pytest

from relstate_dagster.jobs.declare import (
    ViewDeclaration,
    build_project,
    column_lineage,
    dependencies,
    load_project,
    materialized_view,
    output_columns,
    parse_text,
)
from relstate_dagster.jobs.declare.table_tokens import tables_by_tokens
from relstate_dagster.state_lib.errors import DeclarationError


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT * FROM a JOIN b USING (x)", ("a", "b")),
        ("SELECT * FROM a, b WHERE EXISTS (SELECT 1 FROM c WHERE c.x = a.x)", ("a", "b", "c")),
        ("WITH a AS (SELECT * FROM b) SELECT * FROM a", ("b",)),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ("a",)),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM b", ("b",)),
        ("SELECT * FROM a UNION ALL (SELECT * FROM b EXCEPT SELECT * FROM A)", ("a", "b")),
        ("SELECT (SELECT max(x) FROM c) FROM (SELECT * FROM a) AS b", ("a", "c")),
        ("SELECT * FROM range(10) LATERAL VIEW explode(array(1)) e AS y", ()),
        ("SELECT x FROM a LATERAL VIEW explode(xs) e AS x", ("a",)),
        ("FROM a SELECT x", ("a",)),
    ],
)
def test_dependencies(query, read):
    assert set(dependencies(query)) == set(read)


@pytest.mark.parametrize("table", ["db.t", "delta.`/tmp/x`", "a.b.c"])
def test_tables_by_path_or_in_parts_are_refused(table):
    with pytest.raises(DeclarationError, match="by path or by a name in several parts"):
        dependencies(f"SELECT * FROM {table}")


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT window, count(*) FROM a GROUP BY window(ts, '30 minutes')", ("a",)),
        ("SELECT FROM T WHERE ( 'u' ", ("T",)),
        ("SELECT FROM WHERE (", ()),
        (
            "SELECT extract(DAY FROM ts), trim(BOTH ' ' FROM s) FROM a x, b AS y JOIN c ON x.k IS NOT DISTINCT FROM y.k, d",
            "abcd",
        ),
        (
            "WITH a AS (SELECT * FROM a), n (x, y) AS (SELECT * FROM b) SELECT * FROM a, n, c WHERE k IN (SELECT k FROM d)",
            "abcd",
        ),
        ("SELECT * FROM a LATERAL VIEW explode(xs) e AS u, v", ("a",)),
        ("SELECT * FROM (SELECT * FROM `a`) q JOIN LATERAL (SELECT 1), range(3), VALUES (1), (2) AS b(x), c", ("a", "c")),
        ("FROM a |> JOIN b USING (k) |> AGGREGATE sum(v) GROUP BY window(ts, '1 day'), k |> SELECT k, v", ("a", "b")),
        ("SELECT 'FROM x', \"JOIN y\" FROM a -- FROM z", ("a",)),
        ("TABLE a", ("a",)),
    ],
)
def test_dependencies_by_tokens(query, read):
    assert set(tables_by_tokens(query, "q")) == set(read)
    assert set(dependencies(query)) == set(read)


@pytest.mark.parametrize("table", ["db.t", "delta.`/tmp/x`"])
def test_tables_by_path_are_refused_by_tokens(table):
    with pytest.raises(DeclarationError, match="by path or by a name in several parts"):
        tables_by_tokens(f"SELECT * FROM a JOIN {table} GROUP BY window(ts, '1 day')", "q")


def test_a_project_with_a_query_that_only_spark_can_read_is_loaded():
    found = project(
        "CREATE TABLE a (ts TIMESTAMP);" + view("w", "SELECT window, count(*) AS n FROM A GROUP BY window(ts, '1 day')")
    )
    assert found.reads == {"w": ("a",)}


SCHEMAS = {
    "flights": {"origin": "STRING", "delay": "INT", "plane": "STRING"},
    "planes": {"plane": "STRING", "seats": "INT"},
}


@pytest.mark.parametrize(
    ("query", "lineage"),
    [
        (
            "SELECT origin, delay + 1 AS d FROM flights",
            {"origin": (("flights", "origin"),), "d": (("flights", "delay"),)},
        ),
        ("SELECT * FROM planes", {"plane": (("planes", "plane"),), "seats": (("planes", "seats"),)}),
        (
            "WITH x AS (SELECT origin, seats FROM flights JOIN planes USING (plane)) "
            "SELECT origin, sum(seats) AS s FROM x GROUP BY origin",
            {"origin": (("flights", "origin"),), "s": (("planes", "seats"),)},
        ),
        ("SELECT count(*) AS n FROM flights", {"n": ()}),
        ("SELECT nonsense FROM", {}),
    ],
)
def test_column_lineage(query, lineage):
    assert column_lineage(query, SCHEMAS) == lineage


def test_output_columns():
    assert output_columns("SELECT a, b AS c, count(*) AS n FROM t") == ("a", "c", "n")
    assert output_columns("SELECT * FROM t") == ()


def project(text, exists=None):
    return build_project(parse_text(text, "p.sql"), exists)


def view(name, query):
    return f"CREATE MATERIALIZED VIEW {name} AS {query};\n"


def test_views_come_upstream_first_whatever_the_order_of_files(tmp_path):
    (tmp_path / "a.sql").write_text(view("a", "SELECT * FROM B JOIN c USING (x)") + view("d", "SELECT * FROM a"))
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "b.sql").write_text(view("b", "SELECT * FROM src") + "CREATE VIEW c AS SELECT * FROM b;")
    (tmp_path / "s.sql").write_text("CREATE TABLE src (x INT PRIMARY KEY) LOCATION 'data/src';")
    found = load_project(tmp_path)
    assert [v.name for v in found.views] == ["b", "a", "d"]
    assert found.reads == {"a": ("b", "c"), "d": ("a",), "b": ("src",), "c": ("b",)}
    assert found.upstream("a") == ("b",)
    assert found.sources[0].location == str(tmp_path / "data" / "src")
    assert found.lineage("d") == {"x": (("a", "x"),)}
    assert found.undeclared == ()


def test_lineage_looks_through_plain_views():
    found = project(
        "CREATE TABLE s (a INT, b INT); CREATE VIEW p (k, v) AS SELECT a, b + a FROM s;"
        + view("m", "SELECT k, max(v) AS top FROM p GROUP BY k")
    )
    assert found.lineage("m") == {"k": (("s", "a"),), "top": (("s", "a"), ("s", "b"))}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (view("a", "SELECT * FROM a"), r"p.sql:1: view a reads itself"),
        (
            view("a", "SELECT * FROM b") + view("b", "SELECT * FROM c") + view("c", "SELECT * FROM a"),
            "in a circle: .* → ",
        ),
        (view("a", "SELECT 1") + view("A", "SELECT 2"), r"p.sql:2: 'A' is already declared at p.sql:1"),
        (view("a", "SELECT 1") + "CREATE TABLE a (x INT);", "already declared"),
    ],
)
def test_wrong_projects(text, message):
    with pytest.raises(DeclarationError, match=message):
        project(text)


def test_circle_is_told_in_the_direction_of_reading():
    text = view("a", "SELECT * FROM b") + view("b", "SELECT * FROM c") + view("c", "SELECT * FROM a")
    with pytest.raises(DeclarationError) as caught:
        project(text)
    steps = str(caught.value).split("circle: ")[1].split(".")[0].split(" → ")
    assert set(itertools.pairwise(steps)) == {("a", "b"), ("b", "c"), ("c", "a")}


def test_unknown_tables_are_asked_for_by_the_hook():
    assert project(view("a", "SELECT * FROM Elsewhere")).undeclared == ("Elsewhere",)
    assert project(view("a", "SELECT * FROM x"), exists=lambda name: name == "x").source_names == ("x",)
    with pytest.raises(DeclarationError, match="reads 'y', which is neither declared nor a table"):
        project(view("a", "SELECT * FROM y"), exists=lambda _: False)


def test_a_project_holds_declarations_only(tmp_path):
    (tmp_path / "a.sql").write_text("DROP TABLE x")
    with pytest.raises(DeclarationError, match=r"a.sql:1: a project holds"):
        load_project(tmp_path)
    with pytest.raises(DeclarationError, match="no project folder"):
        load_project(tmp_path / "absent")


def test_view_lookup():
    found = project(view("a", "SELECT 1"))
    assert found.view("A").name == "a"
    with pytest.raises(DeclarationError, match="the project's views are: a"):
        found.view("b")


def test_python_declares_the_same():
    direct = materialized_view(name="v", query="SELECT 1", cluster_by=["a"], properties={"refresh.policy": "full"})
    assert direct == ViewDeclaration("v", "SELECT 1", cluster_by=("a",), properties={"refresh.policy": "full"})

    @materialized_view(comment="Counts.")
    def counted() -> str:
        return "SELECT count(*) AS n FROM v"

    assert (counted.name, counted.comment, counted.query) == ("counted", "Counts.", "SELECT count(*) AS n FROM v")
    assert [v.name for v in build_project([counted, direct]).views] == ["v", "counted"]


@pytest.mark.parametrize("wrong", [{"name": "a b"}, {"name": "v", "properties": {"refresh.policy": "never"}}, {"name": ""}])
def test_python_declarations_are_checked(wrong):
    with pytest.raises(DeclarationError):
        materialized_view(query="SELECT 1", **wrong)
