"""Brief runs are known beforehand, and their processes optimize no code."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import is_brief_run
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.state_lib.lake.table import OpenedTable
from tests.epoch.home import FILES, Home
from tests.sizes import changed_sizes

_VIEWS = ["sums", "over", "others"]


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Home:
    return Home(spark, tmp_path)


def _is_brief(home: Home, *views: str, full_refresh: tuple[str, ...] = ()) -> bool:
    return is_brief_run(home.warehouse, load_project(home.project), views, full_refresh)


def _declare_folder(home: Home) -> None:
    folder = home.project / "files"
    folder.mkdir()
    (folder / "a.csv").write_text("k\n1\n")
    home.write("files", f"CREATE TABLE f (k INT) USING CSV OPTIONS (header 'true') LOCATION '{folder}'")
    home.write("of_files", "CREATE MATERIALIZED VIEW of_files AS SELECT k FROM f")


def _declare_damaged_table(home: Home) -> None:
    log = home.project / "damaged" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("no commit")
    home.write("damaged", f"CREATE TABLE d (k INT) LOCATION '{log.parent}'")
    home.write("of_damaged", "CREATE MATERIALIZED VIEW of_damaged AS SELECT k FROM d")


@pytest.mark.parametrize(
    ("happens", "views", "bytes_read"),
    [
        pytest.param(lambda _: None, _VIEWS, "none", id="nothing"),
        pytest.param(lambda home: home.sql("INSERT INTO t VALUES (3, 3)"), _VIEWS, "some", id="a change"),
        pytest.param(lambda home: home.sql("INSERT INTO t VALUES (3, 3)"), ["others"], "none", id="a change that others read"),
        pytest.param(
            lambda home: home.write("sums", "CREATE MATERIALIZED VIEW sums AS SELECT max(v) AS s FROM p"),
            _VIEWS,
            "some",
            id="an edit",
        ),
        pytest.param(
            lambda home: home.write("new", "CREATE MATERIALIZED VIEW new AS SELECT v FROM t"), ["new"], "some", id="a new view"
        ),
        pytest.param(
            lambda home: home.write("more", "CREATE TABLE m (k INT); CREATE MATERIALIZED VIEW new AS SELECT k FROM m"),
            ["new"],
            "none",
            id="of a table that is made with it",
        ),
        pytest.param(_declare_folder, ["of_files"], "unknown", id="files that nobody has read"),
        pytest.param(_declare_damaged_table, ["of_damaged"], "unknown", id="a table that cannot be read"),
    ],
)
def test_a_run_is_as_brief_as_what_is_read(
    home: Home, happens: Callable[[Home], object], views: list[str], bytes_read: str
) -> None:
    happens(home)
    assert _is_brief(home, *views) is (bytes_read != "unknown")
    assert not _is_brief(home, *views, full_refresh=tuple(views))
    assert not _is_brief(home)
    with changed_sizes(brief_run_views=len(views) - 1):
        assert not _is_brief(home, *views)
    with changed_sizes(brief_run_bytes=0):
        assert _is_brief(home, *views) is (bytes_read == "none")


def test_new_views_over_new_views_read_as_much_as_those(home: Home) -> None:
    home.write("first", "CREATE MATERIALIZED VIEW first AS SELECT k, v FROM t")
    home.write("second", "CREATE MATERIALIZED VIEW second AS SELECT a.k FROM first AS a JOIN first AS b ON a.k = b.k")
    size = OpenedTable(home.warehouse.source_path("t")).total_bytes()
    with changed_sizes(brief_run_bytes=2 * size):
        assert _is_brief(home, "first", "second")
    with changed_sizes(brief_run_bytes=2 * size - 1):
        assert _is_brief(home, "first")
        assert not _is_brief(home, "first", "second")


def _run(home: Home, **environment: str) -> str:
    """What ``relstate run`` prints in a process of its own, the options of its JVM included."""
    done = subprocess.run(
        home.command("run", "--server", "never"),
        env={**os.environ, "SPARK_SUBMIT_OPTS": "-XX:+PrintFlagsFinal", "RELSTATE_DRIVER_MEMORY": "1g", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("sizing", "level"), [("", 1), ("brief_run_bytes=0", 4)])
def test_a_brief_run_optimizes_nothing(home: Home, sizing: str, level: int) -> None:
    home.write("sources", FILES["sources"])
    home.sql("INSERT INTO t VALUES (4, 4)")
    printed = _run(home, RELSTATE_SIZING=sizing)
    found = re.findall(r"intx (TieredStopAtLevel|Tier4BackEdgeThreshold)\s*=\s*(\d+)", printed)
    flags = {name: int(value) for name, value in found}
    assert flags["TieredStopAtLevel"] == level
    # Other runs optimize, but late.
    assert (flags["Tier4BackEdgeThreshold"] == 400_000) is (level == 4)
