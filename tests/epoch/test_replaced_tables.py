"""Tables that are deleted and made again under their names, in one process and one Spark session."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.sources.delta_source import DeltaSource
from relstate_dagster.state_lib.errors import SourceError
from tests.epoch.scripts import Script

_FEED = {"delta.enableChangeDataFeed": "true"}


def test_dropped_and_made_again_by_a_script(script: Script) -> None:
    script.run(
        "CREATE TABLE t (k INT, g INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1), (2, 1);"
        "CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g;"
        "INSERT INTO t VALUES (3, 1); REFRESH; DROP MATERIALIZED VIEW v; DROP TABLE t;"
        "CREATE TABLE t (k BIGINT, h STRING, PRIMARY KEY (k)); INSERT INTO t VALUES (7, 'x');"
        "CREATE MATERIALIZED VIEW v AS SELECT h, count(*) AS n FROM t GROUP BY h;"
        "INSERT INTO t VALUES (8, 'y'); UPDATE t SET h = 'z' WHERE k = 7; REFRESH; VERIFY"
    )
    assert script.rows("SELECT h, n FROM v") == [("y", 1), ("z", 1)]
    assert script.rows("SELECT k, h FROM t") == [(7, "z"), (8, "y")]


def _by_delta_rs(path: Path, session: SparkSession) -> None:
    rows = pa.table({"k": [5, 6], "h": ["x", "y"]})
    deltalake.write_deltalake(path, rows, configuration=_FEED)


def _by_spark(path: Path, session: SparkSession) -> None:
    session.sql(
        f"CREATE TABLE delta.`{path}` (k BIGINT, h STRING) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    session.sql(f"INSERT INTO delta.`{path}` VALUES (5, 'x'), (6, 'y')")


@pytest.mark.parametrize("versions", [1, 4], ids=["as many versions", "fewer versions"])
@pytest.mark.parametrize("make", [_by_delta_rs, _by_spark])
def test_made_again_by_others(
    script: Script, spark: SparkSession, tmp_path: Path, make: Callable[[Path, SparkSession], None], versions: int
) -> None:
    path = tmp_path / "x"
    for n in range(versions):
        deltalake.write_deltalake(path, pa.table({"k": [n], "g": [n]}), mode="append", configuration=_FEED)
    script.run(f"CREATE TABLE x USING delta LOCATION '{path}'; SELECT * FROM x")
    script.run("CREATE MATERIALIZED VIEW v AS SELECT k FROM x; SELECT * FROM v")
    shutil.rmtree(path)
    make(path, spark.newSession())
    with pytest.raises(SourceError, match=r"--full-refresh"):
        raise script.error("REFRESH")
    list(EpochRunner(spark, script.warehouse).run(full_refresh=["v"]))
    script.verify()
    assert script.rows("SELECT k FROM v") == [(5,), (6,)]
    assert script.rows("SELECT k, h FROM x WHERE h = 'y'") == [(6, "y")]
    script.run("CREATE MATERIALIZED VIEW w AS SELECT h, count(*) AS n FROM x GROUP BY h")
    script.run("INSERT INTO x VALUES (7, 'x'); REFRESH; VERIFY")
    assert script.rows("SELECT h, n FROM w") == [("x", 2), ("y", 1)]


def test_put_back_from_a_copy_that_spark_has_open(spark: SparkSession, tmp_path: Path) -> None:
    """The same table id and the same version, of another commit."""
    path, copy = tmp_path / "x", tmp_path / "copy"
    deltalake.write_deltalake(path, pa.table({"k": [1]}))
    shutil.copytree(path, copy)
    deltalake.write_deltalake(path, pa.table({"k": [2]}), mode="append")
    assert spark.read.format("delta").load(str(path)).count() == 2
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    deltalake.write_deltalake(path, pa.table({"k": [3]}), mode="append")
    source = DeltaSource("x", str(path))
    assert sorted(source.snapshot(spark, source.pin(None)).collect()) == [(1,), (3,)]
