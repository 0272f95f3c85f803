"""Bounds of long texts in logs are cut, so that Spark can read them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib.lake.commit import write_deltalake
from relstate_dagster.state_lib.lake.statistics import data_files
from relstate_dagster.state_lib.lake.table import DeltaTable
from tests.epoch.scripts import Script


def _longest_line(table: Path) -> int:
    return max(len(line) for log in table.glob("_delta_log/*.json") for line in log.read_text(encoding="utf-8").splitlines())


def test_texts_of_ten_megabytes_with_the_default_heap(tmp_path: Path) -> None:
    statements = """
        CREATE TABLE t (k INT, s STRING, PRIMARY KEY (k));
        INSERT INTO t SELECT id, repeat(chr(97 + id), 10000000) FROM range(3);
        CREATE MATERIALIZED VIEW texts AS SELECT k, s FROM t;
        UPDATE t SET s = concat('z', s) WHERE k = 1;
        INSERT INTO t VALUES (7, repeat('y', 11000000));
        REFRESH; VERIFY;
        SELECT k, length(s) FROM texts ORDER BY k"""
    command = [Path(sys.executable).with_name("relstate"), "sql", "--server", "never", "--format", "json", "-e", statements]
    done = subprocess.run([*command, "--warehouse", tmp_path / "wh"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert rows == [[0, 10_000_000], [1, 10_000_001], [2, 10_000_000], [7, 11_000_000]]
    state = tmp_path / "wh/_relstate/state/texts"
    assert max(_longest_line(table) for table in [tmp_path / "wh/views/texts", *state.iterdir()]) < 100_000


def test_views_over_long_texts_can_be_read_and_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        "CREATE TABLE t (k INT, s STRING, PRIMARY KEY (k));INSERT INTO t SELECT id, repeat(chr(97 + id), 1000000) FROM range(3)"
    )
    script.run(
        "CREATE MATERIALIZED VIEW texts AS SELECT k, s FROM t; CREATE MATERIALIZED VIEW longest AS SELECT max(s) AS s FROM t"
    )
    script.run("UPDATE t SET s = concat('z', s) WHERE k = 1; INSERT INTO t VALUES (7, repeat('y', 1100000)); REFRESH")
    script.verify()
    assert script.rows("SELECT k, length(s) FROM texts") == [(0, 1_000_000), (1, 1_000_001), (2, 1_000_000), (7, 1_100_000)]
    list(EpochRunner(spark, script.warehouse).run(full_refresh=["texts", "longest"]))
    script.verify()
    state = script.warehouse.read()
    tables = [script.warehouse.target(name).path for name in state.views] + [
        script.warehouse.state_path(v) for v in state.views.values()
    ]
    assert max(_longest_line(Path(table)) for table in tables) < 100_000


@pytest.mark.parametrize("character", ["x", "\N{SNOWMAN}", "\U0010ffff"])
def test_bounds_are_cut_and_still_bound(tmp_path: Path, character: str) -> None:
    texts = [character * n for n in (1, 31, 32, 33, 100_000)]
    write_deltalake(str(tmp_path), pa.table({"s": texts}))
    assert _longest_line(tmp_path) < 2_000
    (file,) = data_files(DeltaTable(tmp_path))
    assert file.lower.get("s", "") <= min(texts)
    assert "s" not in file.upper or file.upper["s"] >= max(texts)
    write_deltalake(str(tmp_path), pa.table({"s": texts[:2]}), mode="append")
    DeltaTable(tmp_path).optimize.compact()
    assert _longest_line(tmp_path) < 2_000 or character == "\U0010ffff"


def _damage(table: Path, damage: str) -> None:
    if damage != "bounds":
        found = sorted(table.glob("_delta_log/*.json" if damage == "log" else "**/*.parquet"))
        found[-1].write_text("no longer what it was")
        return
    for log in table.glob("_delta_log/*.json"):
        actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["stats"] = json.dumps({"numRecords": 1, "minValues": {"k": 1, "s": "x" * 20_000_001}})
        log.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


@pytest.mark.parametrize("damage", ["log", "file", "bounds"])
def test_a_full_refresh_replaces_a_table_that_cannot_be_opened(spark: SparkSession, tmp_path: Path, damage: str) -> None:
    script = Script(spark, tmp_path / "warehouse")
    script.run(
        "CREATE TABLE t (k INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1); CREATE MATERIALIZED VIEW v AS SELECT k FROM t"
    )
    state = script.warehouse.read()
    for table in (script.warehouse.target("v").path, script.warehouse.state_path(state.views["v"])):
        _damage(Path(table), damage)
    runner = EpochRunner(spark, script.warehouse)
    script.run("INSERT INTO t VALUES (2)")
    list(runner.run(full_refresh=["v"]))
    assert script.rows("SELECT k FROM v") == [(1,), (2,)]
    script.verify()
    script.run("DELETE FROM t WHERE k = 1; REFRESH")
    assert script.rows("SELECT k FROM v") == [(2,)]
    script.verify()
