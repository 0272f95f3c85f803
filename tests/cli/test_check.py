"""``relstate check`` and ``verify --sample``, as a person calls them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.cli.app import console, output
from relstate_dagster.state_lib.errors import DeclarationError

_VIEW = """CREATE MATERIALIZED VIEW totals (CONSTRAINT positive EXPECT (total >= 0){})
TBLPROPERTIES ('check.key.unique' = 'customer', 'check.some.rows' = '1..') AS
SELECT customer, sum(cents) AS total FROM orders GROUP BY customer"""


@pytest.fixture
def relstate(spark, tmp_path, monkeypatch):
    for shown_on in (console, output):
        monkeypatch.setattr(shown_on, "_width", 80)
    monkeypatch.delenv("RELSTATE_PROJECT", raising=False)
    project = tmp_path / "project"
    project.mkdir()
    (project / "s.sql").write_text("CREATE TABLE orders (id INT, customer STRING, cents BIGINT, PRIMARY KEY (id))")
    (project / "v.sql").write_text(_VIEW.format(""))

    def call(verb, *arguments, on_project=True):
        where = ["--warehouse", str(tmp_path / "warehouse"), *(["--project", str(project)] if on_project else [])]
        done = CliRunner().invoke(app, [verb, *arguments, *where])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert all(len(line) <= 80 for line in done.output.splitlines() if "│" in line or "┃" in line), done.output
        return done.exit_code, done.output

    call.view = project / "v.sql"
    return call


def test_checks_are_made_and_an_error_is_an_exit_code(relstate):
    assert relstate("run")[0] == 0
    code, said = relstate("check")
    assert (code, "FAILED" in said, "0 rows" in said) == (1, True, True), "some.rows"
    with_checks = relstate("run", "--check")
    assert (with_checks[0], "unchanged" in with_checks[1], "FAILED" in with_checks[1]) == (1, True, True)
    code, said = relstate("sql", "-e", "CHECK totals", on_project=False)
    assert (code, "totals: check some fails: 0 rows" in said.replace("\n", " ")) == (1, True)
    relstate("sql", "-e", "INSERT INTO orders VALUES (1, '[bold]ann|', -5), (2, NULL, -6), (3, 'bob', 7)", on_project=False)
    code, said = relstate("run", "--check")
    assert (code, "+3 −0" in said, "warning" in said, "2 of 3 rows fail" in said) == (0, True, True, True)
    code, said = relstate("sql", "--format", "json", "-e", "CHECK", on_project=False)
    assert code == 0
    result = next(json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert result["columns"] == ["view", "check", "passed", "severity", "found", "failing_rows", "epoch"]
    assert ["totals", "positive", False, "warn"] in [row[:4] for row in result["rows"]]
    code, said = relstate("check", on_project=False)
    assert (code, "warning" in said, "2 of 3 rows fail" in said) == (0, True, True)
    assert "[bold]ann| │ -5" in said
    assert "NULL" in said
    # The same condition as an error: the project's declarations are heard without a run.
    relstate.view.write_text(_VIEW.format(" ON VIOLATION FAIL UPDATE"))
    assert relstate("check", "totals", on_project=False)[0] == 0
    assert relstate("check", "totals")[0] == 1
    assert relstate("run", "--check", "totals")[0] == 1
    assert relstate("check", on_project=False)[0] == 1
    with pytest.raises(DeclarationError, match="no materialized view named total;"):
        relstate("check", "total")
    relstate.view.write_text(_VIEW.format("").replace("total >= 0", "totl >= 0"))
    for verb in ("check", "run"):
        with pytest.raises(DeclarationError, match="check positive, expect: totl >= 0"):
            relstate(verb)
    code, said = relstate("verify", "--sample", "2", on_project=False)
    assert code == 0
    assert "keys" in said


def test_where_no_check_is_declared_that_is_said(relstate):
    relstate("sql", "-e", "CREATE TABLE t (a INT); CREATE MATERIALIZED VIEW v AS SELECT a FROM t", on_project=False)
    code, said = relstate("check", on_project=False)
    assert (code, "no check is declared" in said) == (0, True)
    assert relstate("sql", "-e", "CHECK", on_project=False)[0] == 0
    assert "no materialized view named w" in relstate("sql", "-e", "CHECK w", on_project=False)[1].replace("\n", " ")
