"""Settings of spark-defaults.conf beside those that views need."""

from __future__ import annotations

from pathlib import Path

import pytest

from relstate_dagster.jobs.engine.defaults_file import beside, defaults_of_spark

_TEXT = """
# a comment
! another one
spark.sql.catalogImplementation hive
spark.jars=/opt/unity.jar,/opt/other.jar
  spark.sql.catalog.lake :  org.apache.iceberg.spark.SparkCatalog
spark.driver.extraJavaOptions  -Da=1 \\
    -Db=2
spark.empty
spark.url  jdbc:derby:;databaseName=/tmp/m;create=true
"""
_OURS = {
    "spark.jars": "delta.jar",
    "spark.sql.extensions": "io.delta.Extension",
    "spark.driver.extraJavaOptions": "-Dours",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.catalog.spark_catalog": "DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.mark.parametrize("place", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_the_file_is_found_and_read_as_spark_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert defaults_of_spark() == {}
    monkeypatch.setenv(place, str(tmp_path))
    assert defaults_of_spark() == {}
    folder = tmp_path if place == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text(_TEXT)
    assert defaults_of_spark() == {
        "spark.sql.catalogImplementation": "hive",
        "spark.jars": "/opt/unity.jar,/opt/other.jar",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.driver.extraJavaOptions": "-Da=1 -Db=2",
        "spark.empty": "",
        "spark.url": "jdbc:derby:;databaseName=/tmp/m;create=true",
    }


@pytest.mark.parametrize(
    ("defaults", "asked", "changed"),
    [
        ({}, {}, {}),
        ({"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.catalog.lake": "a.Catalog"}, {}, {}),
        ({"spark.sql.catalogImplementation": "hive"}, {}, {"spark.sql.catalogImplementation": "hive"}),
        (
            {"spark.sql.catalog.spark_catalog": "a.Catalog"},
            {"spark.sql.catalog.spark_catalog": "b.Catalog"},
            {"spark.sql.catalog.spark_catalog": "b.Catalog"},
        ),
        ({"spark.sql.catalog.spark_catalog": "a.Catalog"}, {}, {}),
        ({"spark.jars": "a.jar"}, {}, {"spark.jars": "delta.jar,a.jar"}),
        ({"spark.jars": "a.jar"}, {"spark.jars": "b.jar"}, {"spark.jars": "delta.jar,b.jar"}),
        ({"spark.sql.extensions": "a.B"}, {}, {"spark.sql.extensions": "io.delta.Extension,a.B"}),
        ({"spark.driver.extraJavaOptions": "-Da"}, {}, {"spark.driver.extraJavaOptions": "-Dours -Da"}),
        ({}, {"spark.ui.enabled": "true"}, {"spark.ui.enabled": "true"}),
    ],
)
def test_what_spark_is_asked_for(defaults: dict[str, str], asked: dict[str, str], changed: dict[str, str]) -> None:
    assert beside(_OURS, defaults, asked) == {**_OURS, **changed}
