"""Folders of files as sources: each file is read once, whatever becomes of it, of the run that reads it, and of its records."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.jobs.api import idle_reports, preview_run, sync_project
from relstate_dagster.jobs.catalog.waiting import Patience
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.declare.view_tests import load_view_tests
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.run.freshness import views_behind
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.jobs.view_tests import ViewTestRunner
from relstate_dagster.state_lib.errors import RelstateError
from tests.epoch.killed import in_process
from tests.epoch.scripts import Script
from tests.sizes import Resized

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files of a shop"
    made.mkdir()
    return made


def reports_of(script: Script, **selected: Any) -> dict[str, ViewReport]:
    runner = EpochRunner(script.session._spark, script.warehouse)
    return {report.view: report for report in runner.run(**selected)}


def malformed(script: Script) -> list[tuple[Any, ...]]:
    (source,) = [s for s in script.warehouse.read().sources.values() if s.folder is not None]
    return script.rows(f"SELECT file, record, text, reason FROM delta.`{source.path}/_malformed`")


def test_each_file_is_read_once(script: Script, folder: Path) -> None:
    (folder / "a.csv").write_text("id,amount,day\n1,10,2024-01-01\n2,20,2024-01-02\n")
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.csv").write_text("9,9,2024-01-01\n")
    script.run(f"""
        CREATE TABLE sales (id INT, amount DECIMAL(9,2), day DATE) USING csv OPTIONS (header 'true') LOCATION '{folder}';
        CREATE MATERIALIZED VIEW by_day AS SELECT day, count(*) AS n, sum(amount) AS total FROM sales GROUP BY day;
    """)
    assert [(str(day), n, int(total)) for day, n, total in script.rows("SELECT * FROM by_day")] == [
        ("2024-01-01", 1, 10),
        ("2024-01-02", 1, 20),
    ]
    assert reports_of(script)["by_day"].skipped
    # Names that Spark would take for patterns, and addresses for escapes.
    for number, name in enumerate(("b [1]*.csv", "ü %41+x.csv", "below/c{d}.csv", "e'f.csv")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"id,amount,day\n{number + 3},1,2024-01-02\n")
    (folder / "a.csv").unlink()
    assert reports_of(script)["by_day"].rows_in == {"sales": (4, 0)}
    assert script.rows("SELECT n, total FROM by_day")[1][0] == 5
    assert reports_of(script)["by_day"].skipped
    script.verify()


@pytest.fixture(params=["held", "read twice"])
def records_are(request: pytest.FixtureRequest, resized: Resized) -> None:
    if request.param == "read twice":
        resized(driver_change_bytes=0)


@pytest.mark.usefixtures("records_are")
def test_malformed_records_are_kept_apart(script: Script, folder: Path) -> None:
    script.run(f"CREATE TABLE s (a INT NOT NULL, b DOUBLE, c STRING) USING json LOCATION '{folder}'")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n, sum(b) AS b FROM s GROUP BY a")
    (folder / "x.json").write_text(
        '{"a": 1, "b": 1.5}\n\n{"a": "one", "b": 2, "c": "x"}\n{"b": 3}\n{"a": 2, "c": "ok"}\n{"a": 3'
    )
    (folder / "y.json").write_text('[{"a": 5}, {"a": 6}]\n"text"\n')
    report = reports_of(script)["v"]
    assert report.malformed_records == 4, report
    assert "4 of 8 records" in report.remarks[0]
    assert script.rows("SELECT a FROM v") == [(1,), (2,), (5,), (6,)]
    found = malformed(script)
    assert [(file, record) for file, record, *_ in found] == [("x.json", 2), ("x.json", 3), ("x.json", 5), ("y.json", 3)]
    assert [reason for *_, reason in found] == [
        "a: 'one' is no INT",
        "a is NULL",
        "it is no JSON object",
        "it is no JSON object",
    ]
    script.verify()


@pytest.mark.usefixtures("records_are")
def test_csv_says_what_is_wrong_with_a_record(script: Script, folder: Path) -> None:
    """By the header, too: Spark takes columns by their places otherwise, whatever they are called."""
    lines = ["q;day;w.x", "1;2024-01-01;a", "2;2024-13-01;b", "x;2024-01-01;c", "3;2024-01-01", "", "4;2024-01-01;d;e"]
    (folder / "a.csv").write_text("\n".join([*lines, '5;2024-01-05;"f;""g"""', "6;;"]) + "\n")
    script.run(f"""
        CREATE TABLE s (q INT, day DATE, `w.x` STRING) USING csv OPTIONS (header true, sep ';', escape '"')
        LOCATION '{folder}';
        CREATE MATERIALIZED VIEW v AS SELECT * FROM s;
    """)
    assert [(q, text) for q, _, text in script.rows("SELECT * FROM v")] == [(1, "a"), (5, 'f;"g"'), (6, None)]
    assert [(record, reason) for _, record, _, reason in malformed(script)] == [
        (2, "day: '2024-13-01' is no DATE"),
        (3, "q: 'x' is no INT"),
        (4, "it is no record of 3 columns"),
        (5, "it is no record of 3 columns"),
    ]
    (folder / "b.csv").write_text("day;q;w.x\n2024-01-01;1;a\n")
    with pytest.raises(RelstateError, match=r"(?s)source s: files in .*header"):
        reports_of(script)
    (folder / "b.csv").unlink()
    (folder / "c.csv").write_text("q;day;w.x\n7;2024-01-01;a\n")
    assert reports_of(script)["v"].rows_in == {"s": (1, 0)}
    (folder / "d.csv").write_text("q;day;w.x\n")
    assert reports_of(script)["v"].skipped or not reports_of(script)["v"].rows_inserted
    assert reports_of(script)["v"].skipped
    script.verify()


def _write(folder: Path, name: str, rows: dict[str, list[Any]]) -> None:
    (folder / name).parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table(rows), folder / name)


def test_parquet_in_folders_of_partition_values_with_columns_inferred(script: Script, folder: Path) -> None:
    _write(folder, "day=2024-01-01/a.parquet", {"k": [1, 2], "s": [{"x": 1.5}, None]})
    _write(folder, "day=2024-01-02/a.parquet", {"k": [3], "s": [{"x": 2.5}]})
    script.run(f"""
        CREATE TABLE p USING parquet LOCATION '{folder}';
        CREATE MATERIALIZED VIEW v AS SELECT CAST(day AS STRING) AS day, count(*) AS n, sum(s.x) AS x FROM p GROUP BY day;
    """)
    assert script.rows("SELECT * FROM v") == [("2024-01-01", 2, 1.5), ("2024-01-02", 1, 2.5)]
    _write(folder, "day=2024-01-02/b.parquet", {"k": [4], "s": [{"x": 1.0}]})
    (folder / "day=2024-01-03").mkdir()
    (folder / "day=2024-01-03" / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(RelstateError, match=r"source p: files in .*bad\.parquet"):
        reports_of(script)
    (folder / "day=2024-01-03" / "bad.parquet").unlink()
    assert reports_of(script)["v"].rows_in == {"p": (1, 0)}
    assert script.rows("SELECT * FROM v") == [("2024-01-01", 2, 1.5), ("2024-01-02", 2, 3.5)]
    script.verify()


def test_a_file_that_was_changed_is_an_error_until_it_is_put_right(script: Script, folder: Path) -> None:
    script.run("CREATE TABLE t (k INT); CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM t")
    (folder / "a.json").write_text('{"a": 1}')
    (folder / "empty.json").touch()
    script.run(f"CREATE TABLE s (a INT) USING json LOCATION '{folder}'; CREATE MATERIALIZED VIEW v AS SELECT a FROM s")
    times = (folder / "a.json").stat().st_mtime_ns
    with (folder / "a.json").open("a") as file:
        file.write('\n{"a": 2}')
    script.run("INSERT INTO t VALUES (1)")
    assert "1 file(s)" in str(script.error("REFRESH"))
    assert "a.json (8 bytes" in str(script.error("REFRESH"))
    assert script.rows("SELECT n FROM other") == [(1,)]  # the others go on
    (folder / "a.json").write_text('{"a": 1}')
    os.utime(folder / "a.json", ns=(times, times))
    (folder / "empty.json").write_text('{"a": 3}')
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT a FROM v") == [(1,), (3,)]
    (folder / "a.json").unlink()
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT a FROM v") == [(1,), (3,)]


@pytest.mark.parametrize("place", ["before_files_are_read", "after_files_are_read", "before_files_are_entered"])
def test_a_run_that_was_killed_loses_and_doubles_nothing(
    script: Script, folder: Path, place: str, jvm: SparkSession | None
) -> None:
    (folder / "a.json").write_text('{"a": 1}\n{"a": "x"}\n')
    script.run(f"CREATE TABLE s (a INT) USING json LOCATION '{folder}'; CREATE MATERIALIZED VIEW v AS SELECT a FROM s")
    (folder / "b.json").write_text('{"a": 2}\n{"a": "y"}\n')
    killed = in_process("REFRESH", script.warehouse.root, place, jvm)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    if place != "before_files_are_read":
        (folder / "b.json").unlink()  # what was committed is not read again
    (folder / "c.json").write_text('{"a": 3}\n')
    report = reports_of(script)["v"]
    assert report.malformed_records == 1
    assert script.rows("SELECT a FROM v") == [(1,), (2,), (3,)]
    assert [text for _, _, text, _ in malformed(script)] == ['{"a": "x"}', '{"a": "y"}']
    source = script.warehouse.read().sources["s"]
    assert script.rows(f"SELECT path, count(*) FROM delta.`{source.path}/_files` GROUP BY path") == [
        ("a.json", 1),
        ("b.json", 1),
        ("c.json", 1),
    ]
    script.verify()


def test_runs_at_once_read_each_file_once(
    script: Script, folder: Path, monkeypatch: pytest.MonkeyPatch, resized: Resized
) -> None:
    """One run reads all of them while another one is about to commit some; and several begin at the same time."""
    script.run(f"CREATE TABLE s (a INT) USING json LOCATION '{folder}'")
    for n in range(3):
        script.run(f"CREATE MATERIALIZED VIEW v{n} AS SELECT a, count(*) AS n FROM s GROUP BY a")
    (folder / "a.json").write_text('{"a": 1}\n{"a": "x"}\n')
    inside: list[str] = []

    def reached(place: str) -> None:
        if place == "before_files_are_read" and not inside:
            inside.append(place)
            (folder / "b.json").write_text('{"a": 2}\n{"a": "y"}\n')
            list(EpochRunner(script.session._spark, Warehouse(script.warehouse.root)).run(["v1"]))

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reached", reached)
        list(EpochRunner(script.session._spark, script.warehouse).run(["v0"]))
    assert inside
    resized(folder_batch_files=2)
    for n in range(5):
        (folder / f"{n}.json").write_text(json.dumps({"a": n}))

    def run(view: str) -> None:
        list(EpochRunner(script.session._spark, Warehouse(script.warehouse.root), patience=Patience(60)).run([view]))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, ["v0", "v1", "v2"]))
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT * FROM v2") == [(0, 1), (1, 2), (2, 2), (3, 1), (4, 1)]
    assert Counter(text for _, _, text, _ in malformed(script)) == Counter(['{"a": "x"}', '{"a": "y"}'])
    source = script.warehouse.read().sources["s"]
    assert script.rows(f"SELECT count(*), count(DISTINCT path) FROM delta.`{source.path}/_files`") == [(7, 7)]
    assert not list(Path(source.path, "_batches").iterdir())


def test_another_declaration_reads_the_folder_from_its_first_file_on(script: Script, folder: Path) -> None:
    """So does a table that was dropped and made again."""
    (folder / "a.csv").write_text("1;2\n")
    script.run(f"CREATE TABLE s (a STRING, b STRING) USING csv LOCATION '{folder}'")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT a, b FROM s")
    assert script.rows("SELECT * FROM v") == []
    assert len(malformed(script)) == 1
    before = Path(script.warehouse.read().sources["s"].path)
    project = folder.parent / "project"
    project.mkdir()
    (project / "s.sql").write_text(
        "CREATE TABLE s (a STRING, b STRING) USING csv OPTIONS (sep ';') LOCATION '../files of a shop';"
    )
    (project / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT a, b FROM s")
    run_project(script, project)
    assert script.rows("SELECT * FROM v") == [("1", "2")]
    script.run("DROP MATERIALIZED VIEW v; DROP TABLE s")
    assert not before.exists()
    assert not list(before.parent.iterdir())
    script.run(f"CREATE TABLE s (a STRING, b STRING) USING csv OPTIONS (sep ';') LOCATION '{folder}'")
    assert script.rows("SELECT * FROM s") == [("1", "2")]


def run_project(script: Script, project: Path) -> None:
    sync_project(script.session._spark, script.warehouse, load_project(project))
    list(EpochRunner(script.session._spark, script.warehouse).run())
    script.verify()


def test_a_key_of_files_can_be_put_right(script: Script, folder: Path) -> None:
    """A row of a key that is there is an error, until somebody deletes one."""
    (folder / "a.json").write_text('{"k": 1, "v": 1}\n{"v": 9}')
    script.run(f"CREATE TABLE s (k INT, v INT, PRIMARY KEY (k)) USING json LOCATION '{folder}'")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT sum(v) AS v FROM s")
    assert script.rows("SELECT v FROM v") == [(1,)]
    assert [reason for *_, reason in malformed(script)] == ["k is NULL"]
    (folder / "b.json").write_text('{"k": 1, "v": 2}')
    assert "key" in str(script.error("REFRESH"))
    script.run("DELETE FROM s WHERE v = 1; REFRESH; VERIFY")
    assert script.rows("SELECT v FROM v") == [(2,)]
    assert f"put one into {folder}" in str(script.error("INSERT INTO s VALUES (3, 3)"))


def test_the_key_of_inferred_columns_is_required_as_well(script: Script, folder: Path) -> None:
    (folder / "a.json").write_text('{"k": 1, "v": 1}\n{"v": 9}')
    script.run(f"CREATE TABLE s (PRIMARY KEY (k)) USING json LOCATION '{folder}'")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT sum(v) AS v FROM s; VERIFY")
    assert script.rows("SELECT v FROM v") == [(1,)]
    assert [reason for *_, reason in malformed(script)] == ["k is NULL"]


def test_rows_that_were_put_back_without_their_ledger(script: Script, folder: Path) -> None:
    """The files of the rows that are gone would never be read again."""
    (folder / "a.json").write_text('{"a": 1}')
    script.run(f"CREATE TABLE s (a INT) USING json LOCATION '{folder}'")
    log = Path(script.warehouse.read().sources["s"].path) / "_delta_log"
    shutil.copytree(log, folder.parent / "log")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT a FROM s")
    (folder / "b.json").write_text('{"a": 2}')
    script.run("REFRESH")
    shutil.rmtree(log)
    shutil.copytree(folder.parent / "log", log)
    assert "older than its list of files that were read" in str(script.error("REFRESH"))
    script.run(f"""DROP MATERIALIZED VIEW v; DROP TABLE s;
        CREATE TABLE s (a INT) USING json LOCATION '{folder}'; CREATE MATERIALIZED VIEW v AS SELECT a FROM s; VERIFY""")
    assert script.rows("SELECT a FROM v") == [(1,), (2,)]


def test_a_folder_in_a_test_of_a_view(spark: SparkSession, folder: Path) -> None:
    """The rows are those that the test gives, whatever files there are."""
    (folder / "a.json").write_text('{"a": 1}')
    project = folder.parent / "project"
    project.mkdir()
    (project / "s.sql").write_text(f"CREATE TABLE s (a INT) USING json LOCATION '{folder}'")
    (project / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS n FROM s")
    steps = "steps: [{insert: {s: [{a: 5}]}, expect: [{n: 8}]}]"
    (project / "v.test.yaml").write_text(
        f"view: v\ntests: [{{name: sums, given: {{s: [{{a: 3}}]}}, expect: [{{n: 3}}], {steps}}}]"
    )
    tests = load_view_tests(project, load_project(project))
    (report,) = ViewTestRunner(spark, load_project(project), Warehouse(folder.parent / "home")).run(tests)
    assert report.passed, report
    assert (report.epochs, report.strategy) == (3, "incremental")


def test_changelogs_of_files(script: Script, folder: Path) -> None:
    """Debezium's events as lines of text, and rows that replace others."""
    events = folder / "events"
    events.mkdir()

    def event(op: str, lsn: int, before: Any, after: Any) -> str:
        return json.dumps({"op": op, "before": before, "after": after, "source": {"lsn": lsn}})

    (events / "1").write_text("\n".join([event("c", 1, None, {"k": 1, "v": "a"}), event("c", 2, None, {"k": 2, "v": "b"})]))
    script.run(f"""
        CREATE TABLE u (k INT, v STRING, PRIMARY KEY (k)) USING text LOCATION '{events}' TBLPROPERTIES (
            'source.kind' = 'debezium', 'source.envelope' = 'value', 'source.order' = 'CAST(event.source[''lsn''] AS INT)');
        CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n, max(v) AS v FROM u;
    """)
    assert script.rows("SELECT * FROM u") == [(1, "a"), (2, "b")]
    lines = [event("u", 3, {"k": 1, "v": "a"}, {"k": 1, "v": "z"}), event("d", 4, {"k": 2, "v": "b"}, None)]
    (events / "2").write_text("\n".join(lines))
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT * FROM n") == [(1, "z")]
    assert f"put one into {events}" in str(script.error("INSERT INTO u VALUES ('x')"))
    rows = folder / "rows"
    rows.mkdir()
    (rows / "a.csv").write_text("1,10,1\n1,11,2\n2,20,1\n,1,1\n")
    script.run(f"""
        CREATE TABLE w (k INT, v INT, ts INT, PRIMARY KEY (k)) USING csv LOCATION '{rows}'
        TBLPROPERTIES ('source.kind' = 'upsert', 'source.order' = 'ts');
    """)
    assert script.rows("SELECT k, v FROM w") == [(1, 11), (2, 20)]
    script.run("DROP MATERIALIZED VIEW n; DROP TABLE u; DROP TABLE w")
    assert not script.warehouse.read().sources


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("(a INT) USING csv", "needs a LOCATION"),
        ("(a INT) USING avro LOCATION '{folder}'", "only delta, iceberg, csv, json, orc, parquet, text is taken"),
        ("(a INT) USING delta OPTIONS (x 'y') LOCATION '{folder}'", "OPTIONS say how files are read"),
        ("(a INT) USING csv OPTIONS (mode 'DROPMALFORMED') LOCATION '{folder}'", "'mode' is not taken"),
        ("(a INT) USING csv OPTIONS (recursiveFileLookup true) LOCATION '{folder}'", "folders below are read"),
        ("(a INT) USING csv LOCATION '{folder}/no'", "there is no folder"),
        ("USING csv LOCATION '{folder}'", "no columns are listed"),
        ("(a INT) USING text LOCATION '{folder}/full'", "cannot read"),
        ("(a INT, b ARRAY<INT>) USING csv LOCATION '{folder}/full'", "cannot read"),
        ("(a INT, b STRUCT<c: INT>, PRIMARY KEY (z)) USING json LOCATION '{folder}/full'", "PRIMARY KEY names z"),
        (
            "(a INT, b INT, PRIMARY KEY (a)) USING csv LOCATION '{folder}' TBLPROPERTIES ('source.kind' = 'upsert')",
            "source.order",
        ),
    ],
)
def test_what_is_refused_is_told_before_anything_is_written(script: Script, folder: Path, declared: str, said: str) -> None:
    if "full" in declared:
        (folder / "full").mkdir()
        (folder / "full" / "a.csv").write_text("1\n")
    error = script.error(f"CREATE TABLE s {declared.format(folder=folder)}")
    assert said in str(error), error
    assert isinstance(error, RelstateError)
    assert not script.warehouse.read().sources
    assert not list(Path(script.warehouse.root).glob("sources/*"))


def test_new_files_are_seen_without_spark(script: Script, folder: Path) -> None:
    """By the sensor, `relstate plan`, EXPLAIN, `relstate status`, and a run that would otherwise start no JVM."""
    project = folder.parent / "project"
    project.mkdir()
    (project / "s.sql").write_text(f"CREATE TABLE s (a INT) USING json LOCATION '{folder}'")
    (project / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s")
    run_project(script, project)
    declared = load_project(project)

    def seen() -> tuple[dict[str, str], bool, str]:
        warehouse = Warehouse(script.warehouse.root)
        (found,) = preview_run(warehouse, declared, most_tasks=2)
        return (
            views_behind(warehouse, ["v"]),
            idle_reports(warehouse, declared, ["v"]) is not None,
            f"{found.action} {found.why}",
        )

    assert seen()[:2] == ({}, True)
    (folder / "a.json").write_text('{"a": 1}')
    behind, is_idle, planned = seen()
    assert "1 new file(s), the last of them a.json" in behind["v"]
    assert not is_idle
    assert "a.json" in planned
    assert behind == seen()[0]
    (plan,) = script.run("EXPLAIN MATERIALIZED VIEW v")[-1].rows
    assert "a.json" in plan[0]
    done = CliRunner().invoke(app, ["status", "--warehouse", script.warehouse.root])
    assert "a.json" in done.output.replace("\n", ""), done.output
    run_project(script, project)
    assert seen()[:2] == ({}, True)
    (folder / "a.json").write_text('{"a": 10}')
    behind, is_idle, _ = seen()
    assert "changed after" in behind["v"]
    assert not is_idle


def test_a_converted_table_with_names_that_look_like_patterns(script: Script, tmp_path: Path) -> None:
    """Spark reads all of several files once more for each whose name looks like a pattern, if it is told that none is one."""
    where = tmp_path / "converted"
    for number, name in enumerate(("a[1].parquet", "b.parquet", "{c,b}*?.parquet")):
        _write(where, name, {"k": [number]})
    script.session._spark.sql(f"CONVERT TO DELTA parquet.`{where}`")
    script.run(f"""
        CREATE TABLE c USING delta LOCATION '{where}' TBLPROPERTIES ('delta.appendOnly' = 'true');
        CREATE MATERIALIZED VIEW v AS SELECT k FROM c; VERIFY
    """)
    assert script.rows("SELECT k FROM v") == [(0,), (1,), (2,)]
    assert "declare it USING delta" in str(script.error(f"CREATE TABLE p USING parquet LOCATION '{where}'"))
