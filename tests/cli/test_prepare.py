"""``relstate prepare`` writes an archive of classes that the next Spark maps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.cli import prepare as prepare_module
from relstate_dagster.jobs.spark.class_archive import archive_options, class_archive, writing_to
from relstate_dagster.jobs.spark.java import Java, find_java
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake.storage import STORES

_MAPPED = """
import os, pathlib, subprocess
from relstate_dagster.jobs.spark import SparkSettings, create_session
create_session(SparkSettings(master="local[1]"))
(pid,) = subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True).stdout.split()
print(sorted({line.split()[-1] for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if ".jsa" in line}))
"""


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("RELSTATE_CACHE", str(tmp_path))
    return tmp_path


def test_an_archive_is_named_by_java_and_spark(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java, other = (Java(tmp_path / name, 17, "test") for name in ("a", "b"))
    assert class_archive(java) != class_archive(other)
    named = class_archive(java)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert class_archive(java) != named


def test_options_without_an_archive_with_one_and_while_one_is_written(cache: Path, tmp_path: Path) -> None:
    java = find_java()
    assert archive_options(java) == ""
    with writing_to(tmp_path / "new.jsa"):
        assert f'-XX:ArchiveClassesAtExit="{tmp_path}/new.jsa"' in archive_options(java)
    class_archive(java).parent.mkdir()
    class_archive(java).touch()
    assert f'-XX:SharedArchiveFile="{class_archive(java)}"' in archive_options(java)


@pytest.mark.parametrize("store", STORES)
def test_jars_of_a_store_are_fetched_before_anything_runs(cache: Path, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    def fetch(wanted: str) -> None:
        raise EnvironmentProblem(f"jars of {wanted}")

    monkeypatch.setattr(prepare_module, "delta_jars", list)
    monkeypatch.setattr(prepare_module, "jars_of", fetch)
    done = CliRunner().invoke(app, ["prepare", f"--{store}"])
    assert str(done.exception) == f"jars of {store}"
    assert not list(cache.rglob("*.jsa"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.spark
def test_the_next_spark_maps_the_archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "_TRAINING", "SELECT 1")
    done = CliRunner().invoke(app, ["prepare"])
    assert done.exit_code == 0, done.output
    archive = class_archive(find_java())
    assert [f.name for f in archive.parent.iterdir()] == [archive.name], "nothing else is left"
    mapped = subprocess.run([sys.executable, "-c", _MAPPED], capture_output=True, text=True, check=True)
    assert str(archive) in mapped.stdout
