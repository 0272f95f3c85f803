"""The jars of each release of Spark, by the files of an installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from relstate_dagster.jobs.engine.jars import has_jars_of, needed_delta_jars, needed_jars_of
from relstate_dagster.jobs.engine.spark_release import hadoop_release, spark_release
from relstate_dagster.state_lib.errors import EnvironmentProblem


def _installed(monkeypatch: pytest.MonkeyPatch, folder: Path, spark: str, hadoop: str) -> None:
    """A folder with the jars that tell the releases."""
    (folder / "jars").mkdir(parents=True)
    for name in (f"spark-core_2.13-{spark}", f"hadoop-client-api-{hadoop}"):
        (folder / "jars" / f"{name}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(folder))


@pytest.mark.parametrize(
    ("spark", "release", "hadoop", "hadoop_jars"),
    [
        ("4.0.1", "4.0", "3.4.1", "3.4.1"),
        ("4.1.4", "4.1", "3.4.2", "3.4.2"),
        ("4.2.0-SNAPSHOT", "4.2", "3.5.0", "3.5.0"),
        ("4.0.1-amzn-0", "4.0", "3.4.1-amzn-2", "3.4.1"),
    ],
)
def test_jars_go_with_the_installed_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: str, release: str, hadoop: str, hadoop_jars: str
) -> None:
    _installed(monkeypatch, tmp_path, spark, hadoop)
    assert (spark_release(), hadoop_release()) == (release, hadoop_jars)
    assert [jar.artifact for jar in needed_delta_jars()] == [f"delta-spark_{release}_2.13", "delta-storage"]
    for store in ("s3", "azure"):
        versions = {jar.version for jar in needed_jars_of(store) if jar.group == "org.apache.hadoop"}
        assert versions == {hadoop_jars}


@pytest.mark.parametrize("spark", ["3.5.9", "4.3.0"])
def test_another_spark_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: str) -> None:
    _installed(monkeypatch, tmp_path, spark, "9.9.9")
    with pytest.raises(EnvironmentProblem, match=rf"Spark {spark[:3]} is installed; install one of 4\.0, 4\.1, 4\.2"):
        needed_delta_jars()
    with pytest.raises(EnvironmentProblem, match=r"Hadoop 9\.9\.9"):
        needed_jars_of("s3")
    assert not has_jars_of("s3")


def test_a_folder_without_spark_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="no folder of Spark 4"):
        spark_release()
