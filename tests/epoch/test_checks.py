"""Checks of views, made on what is published, and refused at declaration where they cannot be made."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, sync_project
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.state_lib.errors import DeclarationError
from tests.epoch.scripts import Script

_SOURCES = """
CREATE TABLE `orders` (id INT, customer STRING, cents INT, ts TIMESTAMP, raw BINARY, PRIMARY KEY (id));
CREATE TABLE customers (name STRING, PRIMARY KEY (name));
"""


def reports(script: Script, spark: SparkSession, view: str, names=None) -> dict:
    noon = lambda: datetime(2024, 5, 1, 12, tzinfo=timezone.utc)  # noqa: E731
    return {r.check.name: r for r in EpochRunner(spark, script.warehouse, clock=noon).check([view], names)}


def test_each_kind_fails_with_some_of_its_rows(script: Script, spark: SparkSession) -> None:
    script.run(
        _SOURCES + "INSERT INTO orders SELECT id, if(id % 2 = 0, NULL, concat('c|', id % 3)), 10 - id, "
        "TIMESTAMP '2024-05-01 09:00:00+00:00', X'00FF' FROM range(20); INSERT INTO customers VALUES ('c|0'), ('c|1');"
        """CREATE MATERIALIZED VIEW v (id, `_check`, `c0`, `a.b`, rows, `yes?`, pair,
            CONSTRAINT positive EXPECT (rows >= 0) ON VIOLATION FAIL UPDATE, CONSTRAINT unknown EXPECT (`_check` > ''))
        TBLPROPERTIES ('check.key.unique' = 'ID', 'check.twice.unique' = '`a.b`, _check', 'check.pairs.unique' = 'pair',
            'check.there.not_null' = '_check, id',
            'check.known.accepted' = "_check IN ('c|0', NULL)", 'check.customer.references' = '_check IN CUSTOMERS(name)',
            'check.self.references' = '(id, rows) IN v(id, rows)', 'check.few.rows' = '..19', 'check.enough.rows' = '20..',
            'check.fresh.fresh' = 'c0, 3 hours', 'check.stale.fresh' = 'c0, 170 minutes',
            'check.yes.expect' = '`yes?`', 'check.divides.expect' = '1 / (id - 3) < 2', 'check.of_time.expect' = 'c0 <= now()')
        AS SELECT id, customer, ts, raw, cents, id >= 0, id div 2 FROM orders"""
    )
    found = reports(script, spark, "v")
    assert {name: report.passed for name, report in found.items()} == {
        "positive": False,
        "unknown": False,
        "key": True,
        "twice": False,
        "pairs": False,
        "there": False,
        "known": False,
        "customer": False,
        "self": True,
        "few": False,
        "enough": True,
        "fresh": True,
        "stale": False,
        "yes": True,
        "divides": False,
        "of_time": True,
    }
    shown = found["positive"].shown
    assert (found["positive"].failing, found["positive"].found) == (9, "9 of 20 rows fail")
    assert shown.columns == ("id", "_check", "c0", "a.b", "rows", "yes?", "pair")
    assert len(shown.rows) == 5
    assert all(int(row[4]) < 0 and row[3] == "0x00FF" for row in shown.rows)
    assert found["unknown"].failing == 10, "NULL does not meet a condition"
    assert all(row[1] is None for row in found["unknown"].shown.rows)
    assert (found["there"].failing, found["known"].failing) == (10, 7), "a NULL is an accepted value, c|1 and c|2 are not"
    assert found["twice"].found == "3 keys occur more than once, in 10 rows"
    assert found["pairs"].found == "10 keys occur more than once, in 20 rows"
    assert found["twice"].shown.columns == ("a.b", "_check", "rows")
    assert found["customer"].failing == 3
    assert {row[1] for row in found["customer"].shown.rows} == {"c|2"}
    assert (found["few"].found, found["stale"].found) == ("20 rows", "the newest c0 is 2024-05-01 09:00:00 UTC, 3 h 0 min old")
    # The one that cannot be computed fails alone, and says why.
    assert "DIVIDE_BY_ZERO" in found["divides"].problem
    assert [name for name, report in found.items() if report.problem] == ["divides"]
    assert set(reports(script, spark, "v", ["key", "few"])) == {"key", "few"}
    with pytest.raises(DeclarationError, match="view v has no check kex; there are positive, unknown, key"):
        reports(script, spark, "v", ["kex"])


def test_a_check_is_of_the_epoch_that_the_view_has_reached(script: Script, spark: SparkSession) -> None:
    script.run(
        _SOURCES + "INSERT INTO customers VALUES ('ann'); INSERT INTO orders (id, customer, cents) VALUES (1, 'ann', 5);"
        "CREATE MATERIALIZED VIEW names AS SELECT name FROM customers;"
        "CREATE MATERIALIZED VIEW v TBLPROPERTIES ('check.c.references' = 'customer IN names(name)', "
        "'check.s.references' = 'customer IN customers(name)', 'check.n.rows' = '1') "
        "AS SELECT o.customer FROM orders o JOIN customers c ON o.customer = c.name;"
        "INSERT INTO orders (id, customer, cents) VALUES (2, 'bob', 5); INSERT INTO customers VALUES ('bob'); "
    )
    script.run("DELETE FROM customers")  # what is pinned has ann
    assert [r.passed for r in reports(script, spark, "v").values()] == [True] * 3
    script.run("INSERT INTO customers VALUES ('ann'), ('bob'); REFRESH v")
    found = reports(script, spark, "v")
    assert {name: r.passed for name, r in found.items()} == {"c": False, "s": True, "n": False}
    assert found["c"].shown.rows == (("bob",),), "the view that it refers to is an epoch behind"
    script.run("REFRESH")
    assert reports(script, spark, "v")["c"].passed
    script.run("DROP MATERIALIZED VIEW names")
    assert "there is no source or materialized view names any more" in reports(script, spark, "v")["c"].problem


_REFUSED = [
    ("'check.x.unique' = 'nothing'", "check x names nothing, which is no column of it; there are id, m, ts, n"),
    ("'check.x.fresh' = 'n, 1 hour'", "n is of type bigint, and no TIMESTAMP"),
    ("'check.x.expect' = 'v.n > 0'", "v.*n.* cannot be resolved"),
    ("'check.x.expect' = 'nothing > 0'", "check x, expect: nothing > 0: Spark refuses the query: .*nothing"),
    ("'check.x.expect' = 'n'", "x, expect: n: .*filter"),
    ("'check.x.expect' = 'n > 0) OR (true'", "Syntax error"),
    ("'check.x.expect' = 'n > 0; DROP TABLE t'", "Syntax error"),
    ("'check.x.expect' = 'sum(n) > 0'", "invalid expressions: sum"),
    ("'check.x.expect' = 'rand() > 0'", "it gives another result every time"),
    ("'check.x.expect' = 'n IN (SELECT k FROM t)'", "cannot be found"),
    ("'check.x.expect' = 'n > (SELECT min(n) FROM v)'", "it has a subquery"),
    ("'check.x.expect' = 'no_such_function(n) > 0'", "no_such_function"),
    ("'check.x.accepted' = 'n IN (nothing)'", "nothing"),
    (
        "'check.x.references' = 'n IN nowhere(k)'",
        "refers to nowhere, which is no source or materialized view .* there are t",
    ),
    ("'check.x.references' = 'n IN t(nothing)'", "refers to nothing, which is no column of t; there are k, v"),
    ("'check.x.references' = 'm IN t(k)'", "check x, references: m IN t"),
]


def test_what_cannot_be_checked_is_refused_before_anything_is_written(script: Script) -> None:
    query = "SELECT k AS id, map('a', k) AS m, current_timestamp() AS ts, count(*) AS n FROM t GROUP BY k"
    script.run("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k))")
    before = script.warehouse.read()
    for check, said in _REFUSED:
        with pytest.raises(DeclarationError, match=f"(?is)view v: .*{said}"):
            script.run(f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ({check}, 'refresh.policy' = 'full') AS {query}")
    assert script.warehouse.read() == before
    assert not Path(script.warehouse.target("v").path).exists()


def test_checks_that_change_rebuild_nothing(script: Script, spark: SparkSession) -> None:
    def declare(check: str, query: str = "SELECT k, v FROM t") -> None:
        text = f"CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW v {check} AS {query};"
        sync_project(spark, script.warehouse, build_project(parse_text(text)))

    declare("(CONSTRAINT c EXPECT (v > 0))")
    script.run("INSERT INTO t VALUES (1, 1), (2, -1); REFRESH")
    generation = script.warehouse.read().views["v"].generation
    assert reports(script, spark, "v")["c"].failing == 1
    declare("(CONSTRAINT c EXPECT (v > -5)) TBLPROPERTIES ('check.key.unique' = 'k')")
    before = script.warehouse.read()
    assert (before.views["v"].generation, before.rebuilds) == (generation, {})
    assert [r.passed for r in reports(script, spark, "v").values()] == [True, True]
    with pytest.raises(DeclarationError, match="check c names w"):
        declare("TBLPROPERTIES ('check.c.not_null' = 'w')")
    with pytest.raises(DeclarationError, match="refers to away"):
        declare("TBLPROPERTIES ('check.c.references' = 'k IN away(k)')")
    assert script.warehouse.read() == before
    # A column that the next run brings is not there yet.
    declare("TBLPROPERTIES ('check.c.not_null' = 'w', 'check.n.rows' = '2')", "SELECT k, v AS w FROM t")
    found = reports(script, spark, "v")
    assert "v has no column w yet: the next run rebuilds it" in found["c"].problem
    assert found["n"].passed
    script.run("REFRESH")
    assert reports(script, spark, "v")["c"].passed
    script.verify()


def test_of_what_a_changelog_comes_to(script: Script, spark: SparkSession) -> None:
    script.run(
        "CREATE TABLE u (k INT, v INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert', 'check.c.expect' = 'v > 0');"
        "INSERT INTO u VALUES (1, -1), (2, -2); INSERT INTO u VALUES (1, 1); REFRESH"
    )
    assert reports(script, spark, "u")["c"].shown.rows == (("2", "-2"),)


def test_a_view_that_is_not_its_query_shows_rows_of_both(script: Script, spark: SparkSession) -> None:
    queries = {
        "sums": "SELECT g, sum(v) AS s FROM t GROUP BY g",
        "floats": "SELECT g, avg(v / 7D) AS x FROM t GROUP BY g",
        "bag": "SELECT g, v FROM t",
        "first": "SELECT k, g FROM t ORDER BY k LIMIT 5",
        "odd": "SELECT k AS `a.b`, CAST(g AS DOUBLE) AS d, if(g = 0, NULL, DATE '2024-01-01' + g) AS x FROM t",
        "keyless": "SELECT map(g, v) AS m FROM t",
    }
    script.run("CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k)); INSERT INTO t SELECT id, id % 10, id FROM range(100);")
    for name, query in queries.items():
        script.run(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    runner = EpochRunner(spark, script.warehouse)
    for sample in (None, 1000, 3):
        whole = runner.verify(sample=sample)
        assert all(report.equal for report in whole)
        counts = {"sums": 10, "floats": 10, "bag": 100, "odd": 100}
        sampled = {name: sample and min(sample, counts[name]) for name in counts}
        assert {r.view: r.sampled_keys for r in whole} == {**sampled, "first": None, "keyless": None}
    # Somebody else's rows in the published tables, which a run would refuse to build on.
    wrong = {
        "sums": "UPDATE {} SET s = s + 1",
        "floats": "UPDATE {} SET x = x + 1",
        "bag": "DELETE FROM {} WHERE v % 10 = g",
        "odd": "UPDATE {} SET x = NULL, d = d + 1",
    }
    for name, statement in wrong.items():
        place = f"delta.`{script.warehouse.target(name).path}`"
        spark.sql(statement.format(place))
        version = spark.sql(f"DESCRIBE HISTORY {place} LIMIT 1").first()["version"]
        _seen_at(script, name, version)
    for sample, some in ((None, 10), (1000, 10), (3, 3)):
        found = {r.view: r for r in runner.verify(wrong, sample=sample)}
        assert not any(r.equal for r in found.values()), "a view without rows is compared as a whole"
        sums = found["sums"]
        assert (sums.missing_rows, sums.unexpected_rows) == (some, some)
        assert (sums.missing.columns, len(sums.missing.rows)) == (("g", "s"), min(some, 5))
        missing, unexpected = ({g: int(total) for g, total in shown.rows} for shown in (sums.missing, sums.unexpected))
        assert all(unexpected[g] == missing[g] + 1 for g in missing.keys() & unexpected.keys())
        assert len(found["floats"].unexpected.rows) == min(some, 5)
        assert all(row[2] is None for row in found["odd"].unexpected.rows)


def _seen_at(script: Script, view: str, version: int) -> None:
    """Let readers see another version of a published table, as if a run had written it."""
    state = script.warehouse.read()
    last = state.views[view].last_epoch
    epoch = state.epochs[last]
    versions = {**epoch.versions, view: replace(epoch.versions[view], view_version=version)}
    changed = replace(state, epochs={**state.epochs, last: replace(epoch, versions=versions)})
    script.warehouse.catalog.commit(state, changed)


def test_verify_takes_a_sample_in_scripts(script: Script) -> None:
    script.run("CREATE TABLE t (k INT, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW sample AS SELECT k FROM t")
    script.run("INSERT INTO t VALUES (1), (3); REFRESH")
    (result,) = script.run("VERIFY sample SAMPLE 1")
    assert result.rows[0][:2] == ("sample", True)
    script.run("VERIFY SAMPLE 10; VERIFY sample; VERIFY")
    with pytest.raises(DeclarationError, match="SAMPLE needs a number of keys, found '0'"):
        script.run("VERIFY sample SAMPLE 0")
