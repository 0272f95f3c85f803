"""What a cluster sets for all sessions (spark-defaults.conf) and epochs must not go by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import EpochRunner
from tests.epoch.scripts import Script
from tests.sizes import changed_sizes

_SETUP = """
CREATE TABLE t (k INT, g STRING, v INT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 'a', 10), (2, NULL, 20), (3, 'b', 30), (4, 'b', 40);
CREATE MATERIALIZED VIEW parted PARTITIONED BY (g) AS SELECT g, k, v FROM t;
CREATE MATERIALIZED VIEW marked TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT k, v FROM t;
CREATE MATERIALIZED VIEW structs AS SELECT named_struct('k', k, 'G', g) AS s, max(v) AS m FROM t GROUP BY k, g;
CREATE MATERIALIZED VIEW clustered CLUSTER BY (g) AS SELECT g, sum(v) AS s FROM t GROUP BY g;
"""
_SETTINGS = {
    "others write": {
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.databricks.delta.replaceWhere.dataColumns.enabled": "false",
        "spark.databricks.delta.schema.autoMerge.enabled": "true",
        "spark.databricks.delta.optimizeWrite.enabled": "true",
        "spark.databricks.delta.autoCompact.enabled": "true",
        "spark.databricks.delta.autoCompact.minNumFiles": "2",
    },
    "tables have features": {
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        "spark.databricks.delta.properties.defaults.columnMapping.mode": "name",
        "spark.databricks.delta.properties.defaults.enableRowTracking": "true",
    },
}


@contextmanager
def _set_for_all(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Sessions begin with what their Spark was started with, of which they share one copy."""
    shared = spark._jsparkSession.sharedState().conf()
    for key, value in settings.items():
        shared.set(key, value)
    try:
        assert {key: spark.newSession().conf.get(key) for key in settings} == settings
        yield
    finally:
        for key in settings:
            shared.remove(key)


@pytest.mark.parametrize("settings", _SETTINGS)
def test_views_are_right_whatever_the_cluster_sets(spark: SparkSession, tmp_path: Path, settings: str) -> None:
    with _set_for_all(spark, _SETTINGS[settings]):
        script = Script(spark, tmp_path / "warehouse")
        script.run(f"{_SETUP} REFRESH; VERIFY")
        for n, size in enumerate(["driver_publish_bytes", "driver_change_bytes"]):
            with changed_sizes(**{size: 0}):
                script.run(f"UPDATE t SET v = v + 1 WHERE k < 3; INSERT INTO t VALUES ({10 + n}, 'b', 1); REFRESH; VERIFY")
        script.run("DELETE FROM t WHERE g = 'b'")
        runner = EpochRunner(spark, script.warehouse)
        list(runner.run(full_refresh=["parted", "marked", "clustered"]))
        script.verify()
        with changed_sizes(driver_compaction_bytes=0):
            list(runner.compact())
        script.run("UPDATE t SET g = 'c'; REFRESH; VERIFY")


def test_a_published_table_may_be_given_features_that_only_spark_knows(spark: SparkSession, script: Script) -> None:
    script.run(f"{_SETUP} REFRESH")
    for view in ("parted", "marked"):
        path = script.warehouse.target(view).path
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    script.run("UPDATE t SET v = v + 1 WHERE k < 3; INSERT INTO t VALUES (10, 'b', 1); REFRESH; VERIFY")
    script.run("INSERT INTO t VALUES (11, 'c', 1); REFRESH; VERIFY")
