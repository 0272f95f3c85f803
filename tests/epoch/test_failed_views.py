"""A view that cannot be computed is left behind, alone; it keeps its rows, and tries again from its own last epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Registry
from relstate_dagster.jobs.declare import ViewDeclaration
from relstate_dagster.jobs.run.freshness import views_behind
from relstate_dagster.state_lib.errors import DeclarationError, EpochError, RelstateError
from tests.epoch.scripts import Script

_TABLES = """
CREATE TABLE t (k INT, g INT, v BIGINT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30);
CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s FROM t GROUP BY g;
CREATE MATERIALIZED VIEW counts AS SELECT g, count(*) AS n FROM t GROUP BY g;
CREATE MATERIALIZED VIEW over_sums AS SELECT s FROM sums WHERE s > 0;
CREATE MATERIALIZED VIEW both AS SELECT sums.s, counts.n FROM sums JOIN counts USING (g);
"""
_OVERFLOW = "INSERT INTO t VALUES (4, 2, 9223372036854775807)"


def _run(script: Script, *names: str, **options: object) -> tuple[dict[str, str | None], Exception | None]:
    """The problem of each view, and the error that a run ends with."""
    problems: dict[str, str | None] = {}
    try:
        for report in EpochRunner(script.session._spark, script.warehouse).run(list(names) or None, **options):
            problems[report.view] = report.problem
    except RelstateError as error:
        return problems, error
    return problems, None


def test_one_bad_row_stops_one_view_and_those_over_it_until_it_is_gone(script: Script) -> None:
    script.begin(_TABLES)
    first = {name: entry.last_epoch for name, entry in script.warehouse.read().views.items()}
    script.run(_OVERFLOW)
    problems, error = _run(script)
    assert "overflow" in str(error).lower()
    assert str(error).startswith("view sums, epoch")
    assert problems["counts"] is None
    assert problems["over_sums"] == problems["both"] == "waits for sums, which was left behind"
    state = script.warehouse.read()
    assert not state.claims
    assert state.views["counts"].last_epoch > first["counts"]
    assert {n: state.views[n].last_epoch for n in ("sums", "over_sums", "both")} == {
        n: first[n] for n in ("sums", "over_sums", "both")
    }
    assert "overflow" in state.views["sums"].problem.reason.lower()
    # Readers see each at its own epoch, and verify compares each with its own pins.
    assert script.rows("SELECT g, s FROM sums") == [(1, 30), (2, 30)]
    script.verify()
    assert views_behind(script.warehouse, state.views) == {}, "the same run would fail again"

    # Nothing has changed: it is tried again, others have nothing to do, and none of them is hurt.
    problems, error = _run(script, "sums")
    assert error is not None
    assert _run(script, "counts") == ({"counts": None}, None)

    script.run("DELETE FROM t WHERE k = 4")
    assert set(views_behind(script.warehouse, state.views)) == set(state.views)
    assert _run(script) == (dict.fromkeys(("sums", "counts", "over_sums", "both")), None)
    assert all(view.problem is None for view in script.warehouse.read().views.values())
    script.verify()


def test_a_full_refresh_that_fails_leaves_the_old_rows_and_a_later_one_replaces_them(script: Script) -> None:
    script.begin(_TABLES)
    script.run("UPDATE t SET v = v + 1")
    script.run("REFRESH")
    before = {name: script.rows(f"SELECT * FROM {name}") for name in ("sums", "over_sums", "both")}
    script.run(_OVERFLOW)
    problems, error = _run(script, full_refresh=["sums"])
    assert "overflow" in str(error).lower()
    assert problems["counts"] is None
    assert {name: script.rows(f"SELECT * FROM {name}") for name in before} == before
    script.verify()
    script.run("DELETE FROM t WHERE k = 4; UPDATE t SET v = v * 2 WHERE k = 1")
    # It is built beside the old rows, which a run of something else does not touch.
    assert _run(script, "counts") == ({"counts": None}, None)
    assert {name: script.rows(f"SELECT * FROM {name}") for name in before} == before
    assert _run(script)[1] is None
    assert script.rows("SELECT s FROM sums") == [(31,), (43,)]
    assert not script.warehouse.read().rebuilds
    script.verify()
    script.run("UPDATE t SET g = 2 WHERE k = 1; REFRESH; VERIFY")


def test_a_source_that_is_gone_stops_only_its_readers(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    spark.sql(f"CREATE TABLE delta.`{outside}` (a INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    script.begin(_TABLES)
    script.run(f"CREATE TABLE x USING delta LOCATION '{outside}'; CREATE MATERIALIZED VIEW of_x AS SELECT a FROM x")
    outside.rename(tmp_path / "elsewhere")
    assert views_behind(script.warehouse, ["of_x", "sums"]) == {}
    script.run("UPDATE t SET v = v + 1")
    assert set(views_behind(script.warehouse, ["of_x", "sums"])) == {"sums"}, "others are watched as before"
    problems, error = _run(script)
    assert "there is no Delta table at" in str(error)
    assert [name for name, problem in problems.items() if problem] == ["of_x"]
    assert views_behind(script.warehouse, ["of_x", "sums"]) == {}
    (tmp_path / "elsewhere").rename(outside)
    spark.sql(f"INSERT INTO delta.`{outside}` VALUES (1)")
    assert set(views_behind(script.warehouse, ["of_x", "sums"])) == {"of_x"}
    assert _run(script)[1] is None
    script.verify()


def test_several_views_are_named_with_their_reasons(script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS s FROM t")
    script.run("INSERT INTO t VALUES (5, 9, 9223372036854775807), (6, 9, 1)")
    problems, error = _run(script)
    assert isinstance(error, EpochError)
    assert str(error).startswith("2 views were left behind:\n")
    assert "view sums" in str(error)
    assert "view total" in str(error)
    assert problems["counts"] is None


def test_an_edit_below_that_breaks_a_view_is_refused_and_names_it(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES)
    before = script.warehouse.read()
    registry = Registry(spark, script.warehouse)
    with pytest.raises(
        DeclarationError, match=r"view (both|over_sums) cannot be planned on sums as declared now.*edit or drop"
    ):
        registry.declare([ViewDeclaration("sums", "SELECT g, sum(v) AS total FROM t GROUP BY g")])
    assert script.warehouse.read() == before
    # With what reads it edited as well, all is taken at once.
    registry.declare(
        [
            ViewDeclaration("sums", "SELECT g, avg(v) AS total FROM t GROUP BY g"),
            ViewDeclaration("over_sums", "SELECT total AS s FROM sums WHERE total > 0"),
            ViewDeclaration("both", "SELECT sums.total, counts.n FROM sums JOIN counts USING (g)"),
        ]
    )
    assert script.rows("SELECT g, s FROM sums") == [(1, 30), (2, 30)], "as before, until they are rebuilt"
    assert _run(script)[1] is None
    assert script.rows("SELECT g, total FROM sums") == [(1, 15.0), (2, 30.0)]
    assert script.rows("SELECT s FROM over_sums") == [(15.0,), (30.0,)], "with the type that avg has, and not that of sum"
    script.verify()


def test_a_source_of_another_type_is_planned_again(spark: SparkSession, script: Script) -> None:
    path = script.warehouse.source_path("u")
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT, v INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 10)")
    script.run(f"CREATE TABLE u USING delta LOCATION '{path}'; CREATE MATERIALIZED VIEW m AS SELECT k, v FROM u")
    script.run("CREATE MATERIALIZED VIEW over_m AS SELECT v + 1 AS w FROM m")
    spark.sql(f"CREATE OR REPLACE TABLE delta.`{path}` USING delta AS SELECT 1 AS k, 10.75D AS v")
    assert "--full-refresh" in str(_run(script)[1])
    assert _run(script, full_refresh=["m"])[1] is None
    assert script.rows("SELECT v FROM m") == [(10.75,)]
    assert script.rows("SELECT w FROM over_m") == [(11.75,)]
    script.verify()


def test_an_edited_plain_view_rebuilds_what_inlines_it(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES)
    script.run("CREATE VIEW inner_view AS SELECT g, sum(v) AS a FROM t GROUP BY g")
    script.run("CREATE VIEW outer_view AS SELECT a FROM inner_view")
    script.run("CREATE MATERIALIZED VIEW of_plain AS SELECT sum(a) AS a FROM outer_view")
    script.run("CREATE MATERIALIZED VIEW above AS SELECT a + 1 AS b FROM of_plain")
    script.run("CREATE OR REPLACE VIEW inner_view AS SELECT g, avg(v) AS a FROM t GROUP BY g")
    script.verify()  # as it was planned, until it is rebuilt
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT b FROM above") == [(46.0,)]
    error = script.error("CREATE OR REPLACE VIEW inner_view AS SELECT g FROM t")
    assert "outer_view" in str(error) or "of_plain" in str(error)
    script.run("UPDATE t SET v = v + 1; REFRESH; VERIFY")


def test_another_key_of_a_source_rebuilds_what_reads_it(spark: SparkSession, script: Script) -> None:
    script.begin(_TABLES)
    path = script.warehouse.source_path("t")
    registry = Registry(spark, script.warehouse)
    known = script.warehouse.read().sources["t"]
    registry.add_source(replace(known, primary_key=()))
    assert set(script.warehouse.read().rebuilds) == {"sums", "counts", "over_sums", "both"}
    script.run("REFRESH; VERIFY")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 1, 10)")
    script.run("REFRESH; VERIFY")
    registry.add_source(known)
    assert "2 rows have k = 1; remove all but one" in str(_run(script)[1])
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 1")
    script.run("REFRESH; VERIFY")
