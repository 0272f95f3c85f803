"""``until_version`` and ``strict``: a run reads a source no further than a version, and checks what operators give."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, Warehouse, idle_reports, sync_project
from relstate_dagster.jobs.declare import build_project, load_project, parse_text
from relstate_dagster.jobs.operators import routing
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan import nodes
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError, SourceError, StateError
from tests.epoch.scripts import Script

PROJECT = """
    CREATE TABLE t (k INT, v INT, PRIMARY KEY (k));
    CREATE TABLE log (k INT);
    CREATE TABLE u (k INT, v INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert');
    CREATE MATERIALIZED VIEW sums AS SELECT k % 2 AS odd, sum(v) AS s FROM t GROUP BY k % 2;
    CREATE MATERIALIZED VIEW over AS SELECT max(s) AS most, (SELECT count(*) FROM log) AS n FROM sums;
    CREATE MATERIALIZED VIEW newest AS SELECT sum(v) AS s FROM u;
"""


def declared(script: Script) -> None:
    sync_project(script.session._spark, script.warehouse, build_project(parse_text(PROJECT, None)))


def run(script: Script, views: list[str] | None = None, **options: object) -> dict[str, ViewReport]:
    runner = EpochRunner(script.session._spark, script.warehouse)
    return {r.view: r for r in runner.run(views, **options)}  # type: ignore[arg-type]


def catalog_version(script: Script) -> int:
    return Warehouse(script.warehouse.root).read().version


def total(script: Script) -> int:
    return sum(s for _, s in script.rows("SELECT * FROM sums"))


def test_a_run_reads_up_to_a_version_and_the_next_one_goes_on(script: Script) -> None:
    declared(script)
    script.run("INSERT INTO t VALUES (1, 10); INSERT INTO t VALUES (2, 100); INSERT INTO t VALUES (3, 1000)")
    script.run("INSERT INTO log VALUES (1); INSERT INTO u VALUES (1, 1); INSERT INTO u VALUES (1, 2)")
    found = run(script, until_version={"t": 2, "u": 1})
    assert {n: r.source_versions for n, r in found.items()} == {
        "sums": {"t": 2},
        "over": {"log": 1},
        "u": {"u_changelog": 1},
        "newest": {},
    }
    assert (total(script), script.rows("SELECT s FROM newest")) == (110, [(1,)])
    assert script.rows("SELECT * FROM over") == [(100, 1)]
    script.verify()
    assert all(r.skipped for r in run(script, until_version={"t": 2, "u": 1}).values())
    # At the newest version it is as without.
    assert run(script, ["sums", "over"], until_version={"t": 3})["sums"].source_versions == {"t": 3}
    assert total(script) == 1110

    # A rebuilt view goes back; the one that it takes along is at the same version, and whatever follows goes on from there.
    run(script, ["sums", "over"], full_refresh=["sums"], until_version={"t": 1})
    assert (total(script), script.rows("SELECT most FROM over")) == (10, [(10,)])
    script.verify()
    script.run("DELETE FROM t WHERE k = 1")
    run(script)
    assert total(script) == 1100
    script.verify()

    before = catalog_version(script)
    for options, error, said in (
        ({"until_version": {"tt": 1}}, DeclarationError, "there is no source named tt; there are log, t, u_changelog"),
        ({"until_version": {"sums": 1}}, DeclarationError, "there is no source named sums"),
        (
            {"until_version": {"t": 3}},
            SourceError,
            "view sums has read source t up to version 4 and cannot go back to version 3",
        ),
        ({"until_version": {"t": 9}}, SourceError, r"source t \(.*\) has no version 9: the newest is 4"),
        ({"until_version": {"t": 9}, "full_refresh": ["sums"]}, SourceError, "has no version 9"),
        ({"until_version": {"t": -1}}, DeclarationError, "t = -1 is no version"),
        ({"views": ["over"], "until_version": {"t": 3}}, SourceError, "view over has read source t up to version 4"),
        ({"full_refresh": ["nothing"]}, DeclarationError, "no materialized view named nothing"),
    ):
        with pytest.raises(error, match=said):
            run(script, **options)
    assert catalog_version(script) == before, "nothing was written"
    assert run(script, ["newest"], until_version={"t": 1})["newest"].skipped, "what its views do not read concerns nobody"


def test_a_view_that_follows_alone_goes_to_an_epoch_that_reads_no_further(script: Script) -> None:
    declared(script)
    run(script, ["sums", "over"])
    script.run("INSERT INTO t VALUES (1, 1)")
    run(script, ["sums"])
    script.run("INSERT INTO t VALUES (2, 2)")
    run(script, ["sums"])
    over = run(script, ["over"], until_version={"t": 1})["over"]
    assert (over.skipped, script.rows("SELECT most FROM over")) == (False, [(1,)])
    assert run(script, ["over"], until_version={"t": 1})["over"].skipped
    run(script, ["over"])
    assert script.rows("SELECT most FROM over") == [(2,)]
    late = build_project(parse_text("CREATE MATERIALIZED VIEW late AS SELECT most FROM over")).views
    script.session._registry.declare(late)
    run(script, ["late"], until_version={"t": 1})
    assert script.rows("SELECT most FROM late") == [(1,)]
    script.run("DROP MATERIALIZED VIEW late")
    # One that was not built yet would have to begin with all that is below it, which has read on.
    run(script, ["sums", "over"], full_refresh=["sums"])
    script.session._registry.declare(late)
    with pytest.raises(SourceError, match="view sums has read source t up to version 2"):
        run(script, ["late"], until_version={"t": 1})
    run(script)
    script.verify()


def test_a_version_from_before_a_column_is_an_error_of_the_view(script: Script) -> None:
    script.run("CREATE TABLE s (k INT); CREATE MATERIALIZED VIEW a AS SELECT * FROM s")
    script.run("INSERT INTO s VALUES (1); ALTER TABLE s ADD COLUMNS (w INT); INSERT INTO s VALUES (2, 2)")
    with pytest.raises(RelstateError, match=r"view a.* column w"):
        run(script, full_refresh=["a"], until_version={"s": 1})
    assert script.rows("SELECT * FROM a") == []
    run(script)
    script.verify()


def test_files_of_a_folder_are_not_read_beyond_the_version(spark: SparkSession, script: Script, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (folder / "a.csv").write_text("1\n")
    text = f"CREATE TABLE f (k INT) USING csv LOCATION '{folder}'; CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM f"
    (project / "p.sql").write_text(text)
    script.run(text)
    (version,) = run(script)["n"].source_versions.values()
    (folder / "b.csv").write_text("2\n")
    declared = load_project(project)
    opened = Warehouse(script.warehouse.root)
    assert idle_reports(opened, declared, ["n"]) is None
    assert idle_reports(opened, declared, ["n"], until_version={"f": version}) is not None, "the run has nothing to read"
    assert idle_reports(opened, declared, ["n"], until_version={"f": version}, full_refresh=["n"]) is None
    with pytest.raises(SourceError, match=f"has no version {version + 1}"):
        idle_reports(opened, declared, ["n"], until_version={"f": version + 1})
    assert run(script, until_version={"f": version})["n"].skipped
    assert not run(script)["n"].skipped
    script.verify()


def test_strict_mode_leaves_a_view_behind_whose_operators_break_their_promise(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.run("CREATE TABLE t (k INT, at TIMESTAMP, PRIMARY KEY (k))")
    script.run("CREATE MATERIALIZED VIEW late AS SELECT max(at) FROM t WHERE k > 0")
    script.run("CREATE MATERIALIZED VIEW n AS SELECT count(*) FROM t")
    script.run("INSERT INTO t VALUES (1, '2024-01-01 00:00:00.000001'), (2, '2024-01-01 00:00:00.000002')")
    assert not run(script, strict=True)["late"].skipped
    script.run("UPDATE t SET at = at + INTERVAL 1 MICROSECOND; INSERT INTO t VALUES (3, NULL)")
    run(script, strict=True)
    script.verify()

    right = routing.operator_of(nodes.Filter(nodes.Values(((),), ()), "true"))

    def twice(ctx: EpochContext, node: object, child: RowSet | None) -> OperatorResult:
        changes = right(ctx, node, child).changes
        return OperatorResult(None if changes is None else ctx.row_sets.of(changes.frame.union(changes.frame)))

    script.run("DELETE FROM t WHERE k = 3")
    with monkeypatch.context() as broken:
        broken.setitem(routing._OPERATORS, nodes.Filter, twice)
        with pytest.raises(StateError, match=r"view late, epoch \d+: strict mode: operator Filter .* 0 insertion.* 2 deletion"):
            run(script, strict=True)
    assert script.rows("SELECT * FROM n") == [(2,)], "the other view goes on"
    run(script, strict=True)
    script.verify()
