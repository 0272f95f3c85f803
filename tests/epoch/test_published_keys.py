"""Keys of published views that occur more than once, found by the driver and by Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner, KeyReport, sync_project
from relstate_dagster.jobs.declare import build_project, parse_text
from relstate_dagster.jobs.inspect import published_keys
from relstate_dagster.jobs.targets.delta_writer import DeltaWriter
from relstate_dagster.state_lib.errors import DeclarationError, EpochError
from tests.epoch.scripts import Script
from tests.sizes import Resized

_VIEWS = """
CREATE TABLE t (k INT, v INT, PRIMARY KEY (k));
CREATE MATERIALIZED VIEW kept AS SELECT k, v FROM t;
CREATE MATERIALIZED VIEW spaced AS SELECT k AS `a key` FROM t;
CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS s FROM t;
CREATE MATERIALIZED VIEW doubled AS SELECT v, count(*) AS n FROM t GROUP BY v;
"""
_ROWS = "INSERT INTO t VALUES (1, 10), (2, 20), (3, 20)"


def _versions(script: Script) -> dict[str, int]:
    state = script.warehouse.read()
    found = {name: state.versions_at(name) for name in state.views}
    return {name: versions.view_version for name, versions in found.items() if versions and versions.view_version is not None}


@pytest.fixture
def published_twice(script: Script, monkeypatch: pytest.MonkeyPatch) -> tuple[Script, dict[str, int]]:
    """Views of which the last epoch has published two with each row twice; with the versions of the epoch before."""
    script.run(f"{_VIEWS} REFRESH")
    before = _versions(script)
    append = DeltaWriter.append

    def twice(writer, session, changes):
        doubled = writer._declared.view in {"doubled", "kept"}
        return append(writer, session, pa.concat_tables([changes, changes]) if doubled else changes)

    monkeypatch.setattr(DeltaWriter, "append", twice)
    script.run(f"{_ROWS}; REFRESH")
    return script, before


@pytest.mark.parametrize("most_bytes", [1 << 20, 0], ids=["by the driver", "by Spark"])
def test_keys_that_occur_twice(
    spark: SparkSession, published_twice: tuple[Script, dict[str, int]], resized: Resized, most_bytes: int
) -> None:
    script, before = published_twice
    resized(driver_checked_bytes=most_bytes)
    runner, now = EpochRunner(spark, script.warehouse), _versions(script)
    wrong = {"doubled": 2, "kept": 3}
    in_order = ["total", "doubled", "spaced", "kept"]
    found = runner.stream_key_unique(dict.fromkeys(in_order))
    assert found == [KeyReport(view, now[view], wrong.get(view, 0)) for view in in_order]
    # Neither what was published before nor what has been since, but the version that is asked for.
    assert not any(report.duplicated_keys for report in runner.stream_key_unique(before))
    mixed = {**before, "kept": now["kept"]}
    assert {report.view for report in runner.stream_key_unique(mixed) if report.duplicated_keys} == {"kept"}
    spark.sql(f"DELETE FROM delta.`{script.warehouse.target('kept').path}`")
    assert runner.stream_key_unique({"kept": None}) == [KeyReport("kept", now["kept"], 3)]


def test_which_tables_spark_looks_at(
    spark: SparkSession, script: Script, resized: Resized, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[list[str]] = []
    by_spark = published_keys._by_spark

    def counted(session, warehouse, versions):
        looked_at.append(list(versions))
        return by_spark(session, warehouse, versions)

    monkeypatch.setattr(published_keys, "_by_spark", counted)
    script.run(f"{_VIEWS} {_ROWS}; REFRESH")
    runner = EpochRunner(spark, script.warehouse)
    views = dict.fromkeys(["kept", "spaced", "total", "doubled"])
    assert not any(report.duplicated_keys for report in runner.stream_key_unique(views))
    assert looked_at == [["spaced"]], "its columns have other names in the files"
    # Spark's MERGE marks rows as deleted, which is not in the files.
    resized(driver_publish_bytes=0)
    script.run("UPDATE t SET v = 30 WHERE k = 3; REFRESH")
    assert not any(report.duplicated_keys for report in runner.stream_key_unique(views))
    # All that are too large are looked at together.
    resized(driver_checked_bytes=0)
    assert not any(report.duplicated_keys for report in runner.stream_key_unique(views))
    assert looked_at[-1] == list(views)
    assert len(looked_at) == 3


def test_what_cannot_be_looked_at(spark: SparkSession, script: Script) -> None:
    sync_project(spark, script.warehouse, build_project(parse_text(_VIEWS, "views.sql")))
    runner = EpochRunner(spark, script.warehouse)
    with pytest.raises(EpochError, match="view kept has no complete epoch; run it first"):
        runner.stream_key_unique({"kept": None})
    with pytest.raises(DeclarationError, match="no materialized view"):
        runner.stream_key_unique({"nothing": None})
    assert runner.stream_key_unique({}) == []
