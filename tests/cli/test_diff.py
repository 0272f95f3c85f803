"""``relstate diff`` as a person calls it: rows of all types, with and without a key, over rebuilds and after a vacuum."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.cli.app import console, output
from relstate_dagster.jobs.api import EpochRunner, Warehouse, view_diff
from relstate_dagster.jobs.declare import ViewDeclaration
from relstate_dagster.jobs.registration.registry import Registry
from relstate_dagster.state_lib.errors import DeclarationError, EpochError
from tests.epoch.scripts import Script

pytestmark = pytest.mark.spark

_SETUP = """
CREATE TABLE t (
  k INT, `a.b` STRING, d DOUBLE, s STRUCT<x: INT, y: ARRAY<DOUBLE>>, m MAP<STRING, DOUBLE>, b BINARY, PRIMARY KEY (k));
INSERT INTO t VALUES
  (1, 'one', 1.5, struct(1, array(0.0D)), map('p', 1.0D, 'q', 2.0D), X'00FF'),
  (2, NULL, double('NaN'), struct(2, array(double('NaN'))), map(), NULL),
  (3, 'three', -0.0D, NULL, NULL, X''),
  (4, 'four', 4, struct(NULL, NULL), map('z', NULL), X'04');
CREATE MATERIALIZED VIEW keyed AS SELECT * FROM t;
CREATE MATERIALIZED VIEW hidden AS SELECT `a.b`, m FROM t;
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(k) AS s FROM t;
CREATE TABLE bag (v DOUBLE, m MAP<STRING, INT>);
INSERT INTO bag VALUES (1, map('a', 1, 'b', 2)), (1, map('b', 2, 'a', 1)), (double('NaN'), NULL), (NULL, NULL);
CREATE MATERIALIZED VIEW bags AS SELECT v, m FROM bag;
"""
#: Row 2 becomes what it was, row 3 gets the other zero, which is the same to Spark; a map is written in another order.
_CHANGE = """
UPDATE t SET d = double('NaN'), s = named_struct('x', 2, 'y', array(double('NaN'))), m = map() WHERE k = 2;
UPDATE t SET d = 0.0D WHERE k = 3;
UPDATE t SET m = map('q', 2.0D, 'p', 1.0D), `a.b` = NULL, s = named_struct('x', 1, 'y', array(0.0D, NULL)) WHERE k = 1;
DELETE FROM t WHERE k = 4;
INSERT INTO t VALUES (5, 'five', NULL, NULL, map('n', double('NaN')), NULL);
DELETE FROM bag WHERE v IS NULL OR isnan(v);
INSERT INTO bag VALUES (1, map('b', 2, 'a', 1)), (1, map('b', 2, 'a', 1)), (2, map('c', NULL));
REFRESH;
"""


class Terminal:
    def __init__(self, folder: Path) -> None:
        self.warehouse = str(folder)

    def __call__(self, verb: str, *arguments: str) -> str:
        done = CliRunner().invoke(app, [verb, *arguments, "--warehouse", self.warehouse])
        if done.exception is not None:
            raise done.exception
        assert "json" in arguments or all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout
        return done.stdout

    def json(self, verb: str, *arguments: str) -> list[dict[str, Any]]:
        return [
            json.loads(line, parse_constant=pytest.fail) for line in self(verb, *arguments, "--format", "json").splitlines()
        ]


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    for shown_on in (console, output):
        monkeypatch.setattr(shown_on, "_width", 80)
    return Script(spark, tmp_path / "warehouse")


def _epochs(script: Script, view: str) -> tuple[int, ...]:
    return script.warehouse.read().views[view].epochs


def test_rows_of_all_types_by_key_by_a_hidden_key_and_as_bags(spark: SparkSession, script: Script) -> None:
    terminal = Terminal(script.warehouse.root)
    script.run(_SETUP)
    script.run("REFRESH")
    with pytest.raises(EpochError, match=r"no epoch before \d+ to compare with; there are \d+"):
        terminal("diff", "keyed", "--to", str(_epochs(script, "keyed")[0]))
    script.run(_CHANGE)
    *rows, totals = terminal.json("diff", "keyed")
    first, last = _epochs(script, "keyed")[-2:]
    assert totals == {"view": "keyed", "from": first, "to": last, "added": 1, "removed": 1, "changed": 1, "shown": 3}
    assert rows == [
        {
            "change": "changed",
            "key": {"k": 1},
            "old": {"a.b": "one", "s": {"x": 1, "y": [0.0]}},
            "new": {"a.b": None, "s": {"x": 1, "y": [0.0, None]}},
        },
        {
            "change": "removed",
            "row": {"k": 4, "a.b": "four", "d": 4.0, "s": {"x": None, "y": None}, "m": {"z": None}, "b": "04"},
        },
        {"change": "added", "row": {"k": 5, "a.b": "five", "d": None, "s": None, "m": {"n": "nan"}, "b": None}},
    ]
    # As a table where that fits, and as lines where it does not; the hidden column of the published table is in neither.
    said = terminal("diff", "hidden")
    assert "one → NULL" in said
    assert "_key" not in said + terminal("diff", "keyed")
    assert f"epoch {_epochs(script, 'hidden')[-2]} → {last}: 1 added, 1 removed, 1 changed" in said
    assert "a.b=one → NULL" in terminal("diff", "keyed")
    assert "│ ~ │ 4 │ 10 → 11 │" in terminal("diff", "total")
    *rows, totals = terminal.json("diff", "bags")
    assert sorted(rows, key=str) == [
        {"change": "added", "copies": 1, "row": {"v": 2.0, "m": {"c": None}}},
        {"change": "added", "copies": 2, "row": {"v": 1.0, "m": {"a": 1, "b": 2}}},
        {"change": "removed", "copies": 1, "row": {"v": "nan", "m": None}},
        {"change": "removed", "copies": 1, "row": {"v": None, "m": None}},
    ]
    assert (totals["added"], totals["removed"], totals["changed"]) == (3, 2, 0)
    said = terminal("diff", "bags", "--limit", "1")
    assert "3 added, 2 removed, 0 changed (1 shown)" in said
    # Backwards, what came goes.
    assert "3 removed" in terminal("diff", "bags", "--from", str(last), "--to", str(_epochs(script, "bags")[-2]))
    assert "0 added, 0 removed, 0 changed" in terminal("diff", "bags", "--from", str(last))
    found = view_diff(spark, script.warehouse, "bags")
    nan = next(row.old["v"] for row in found.rows if row.old is not None and row.old["v"] is not None)
    assert math.isnan(nan)


def test_over_a_rebuild_with_another_query(script: Script, spark: SparkSession) -> None:
    terminal = Terminal(script.warehouse.root)
    script.run("CREATE TABLE t (k INT, g STRING, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    script.run("CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s, max(v) AS m FROM t GROUP BY g")
    script.run("CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM t; REFRESH")
    (before,) = _epochs(script, "sums")
    script.run("UPDATE t SET v = 5 WHERE k = 1")
    list(EpochRunner(spark, script.warehouse).run(["sums"], full_refresh=["sums"]))
    assert before not in _epochs(script, "sums")
    *rows, totals = terminal.json("diff", "sums")
    assert rows == [{"change": "changed", "key": {"g": "a"}, "old": {"s": 1, "m": 1}, "new": {"s": 5, "m": 5}}]
    assert totals["from"] == before
    # An edit of the query: what both versions have is compared.
    _declare(script, "sums", "SELECT g, sum(v) AS s, double(max(v)) AS m, count(*) AS n FROM t GROUP BY g")
    script.run("REFRESH")
    done = CliRunner().invoke(app, ["diff", "sums", "--from", str(before), "--warehouse", str(script.warehouse.root)])
    said = " ".join(done.output.split())
    assert "was rebuilt between" in said
    assert f"only epoch {_epochs(script, 'sums')[-1]} has a column n" in said
    assert "column m was of type int and is of type double" in said
    assert "1 → 5" in said
    assert "0 added, 0 removed, 1 changed" in said
    # Another key: rows that are equal in both are none of the difference.
    _declare(script, "sums", "SELECT k, g FROM t")
    script.run("REFRESH")
    said = " ".join(
        CliRunner().invoke(app, ["diff", "sums", "--from", str(before), "--warehouse", terminal.warehouse]).output.split()
    )
    assert "have no key in common" in said
    assert "0 added, 0 removed, 0 changed" in said


def test_epochs_that_are_not_there_are_named_with_those_that_are(script: Script, spark: SparkSession) -> None:
    terminal = Terminal(script.warehouse.root)
    with pytest.raises(DeclarationError, match="no materialized view named nothing"):
        terminal("diff", "nothing")
    script.run("CREATE TABLE t (k INT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1), (2, 2)")
    script.run("CREATE MATERIALIZED VIEW plus AS SELECT k, v + 1 AS w FROM t; REFRESH")
    for _ in range(3):
        script.run("UPDATE t SET v = v + 1; REFRESH")
    epochs = _epochs(script, "plus")
    there = ", ".join(map(str, epochs))
    with pytest.raises(EpochError, match=f"has not reached epoch 99, or that is forgotten; there are {there}$"):
        terminal("diff", "plus", "--from", "99")
    assert "2 changed" in terminal("diff", "plus", "--from", str(epochs[0]))
    # As VACUUM does later: the files of the first two epochs go, and those of the last ones stay.
    table = DeltaTable(script.warehouse.target("plus").path)
    versions = [script.warehouse.read().epochs[epoch].versions["plus"].view_version for epoch in epochs]
    files = [set(DeltaTable(table.table_uri, version=version).file_uris()) for version in versions]
    for path in (files[0] | files[1]) - files[2] - files[3]:
        Path(path).unlink()
    left = ", ".join(map(str, epochs[-2:]))
    with pytest.raises(EpochError, match=f"the rows of epoch {epochs[0]} are gone: .*vacuumed away.*; there are {left}$"):
        terminal("diff", "plus", "--from", str(epochs[0]))
    assert "2 changed" in terminal("diff", "plus")
    _declare(script, "unbuilt", "SELECT k FROM t")
    with pytest.raises(EpochError, match="has not been built yet"):
        view_diff(spark, Warehouse(script.warehouse.root), "unbuilt")


def _declare(script: Script, name: str, query: str) -> None:
    Registry(script.session._spark, script.warehouse).declare([ViewDeclaration(name=name, query=query)])
