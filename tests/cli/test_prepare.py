"""``relstate prepare`` keeps what Java has learnt of Spark, and the next Spark maps it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.cli import prepare as prepare_module
from relstate_dagster.cli.doctor import _class_archive as found_by_doctor
from relstate_dagster.jobs.engine.class_archive import archive_options, class_archive, writing_to
from relstate_dagster.jobs.engine.java import Java, _from_path, _from_wheel, find_java
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake.storage import STORES
from tests.processes import until

_MAPPED = """
import os, pathlib, subprocess
from relstate_dagster.jobs.engine import SparkSettings, create_session
create_session(SparkSettings(master="local[1]"))
(pid,) = subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True).stdout.split()
print(sorted({line.split()[-1] for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if "/classes/" in line}))
"""
_PREPARE = """
from relstate_dagster.cli import prepare
prepare._TRAINING = "SELECT 1"
prepare.prepare()
"""
_NEEDS_PROC = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("RELSTATE_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(params=[_from_path, _from_wheel], ids=["path", "wheel"])
def java(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Java:
    """Each Java of this machine: one keeps an archive of classes, the other an ahead-of-time cache."""
    found: Java | None = request.param()
    if found is None:
        pytest.skip("there is none")
    monkeypatch.setenv("JAVA_HOME", str(found.home))
    return find_java()


def _jvms(folder: Path) -> list[int]:
    """Processes that have been given a file of this folder to write."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            texts = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if (entry / "exe").readlink().name == "java" and f"{folder}/classes/prepare-".encode() in texts:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _left(archive: Path) -> set[str]:
    return {file.name for file in archive.parent.iterdir()} - {"prepare.lock"}


def test_an_archive_is_named_by_java_and_spark(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java, other = (Java(tmp_path / name, 17, "test") for name in ("a", "b"))
    assert class_archive(java) != class_archive(other)
    named = class_archive(java)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert class_archive(java) != named


@pytest.mark.parametrize(
    ("release", "writes", "uses"),
    [
        (17, "ArchiveClassesAtExit", "SharedArchiveFile"),
        (21, "ArchiveClassesAtExit", "SharedArchiveFile"),
        (25, "AOTCacheOutput", "AOTCache"),
    ],
)
def test_options_without_an_archive_with_one_and_while_one_is_written(
    cache: Path, tmp_path: Path, release: int, writes: str, uses: str
) -> None:
    java = Java(tmp_path / "java", release, "test")
    assert archive_options(java) == ""
    with writing_to(tmp_path / "new"):
        assert f'-XX:{writes}="{tmp_path}/new"' in archive_options(java)
    class_archive(java).parent.mkdir()
    class_archive(java).touch()
    assert f'-XX:{uses}="{class_archive(java)}"' in archive_options(java)


@pytest.mark.parametrize("store", STORES)
def test_jars_of_a_store_are_fetched_before_anything_runs(cache: Path, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    def fetch(wanted: str) -> None:
        raise EnvironmentProblem(f"jars of {wanted}")

    monkeypatch.setattr(prepare_module, "delta_jars", list)
    monkeypatch.setattr(prepare_module, "jars_of", fetch)
    done = CliRunner().invoke(app, ["prepare", f"--{store}"])
    assert str(done.exception) == f"jars of {store}"
    assert not list(cache.rglob("*.jsa"))


@_NEEDS_PROC
@pytest.mark.spark
def test_the_next_spark_maps_it_and_others_go_on_without(java: Java, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "_TRAINING", "SELECT 1")
    assert found_by_doctor().remedy
    archive = class_archive(java)
    # What is begun before and beside it has nothing to do with which Java it is: one of them shows it.
    is_crowded = java.home == (_from_path() or java).home
    others: list[int] = []
    if is_crowded:
        _kill_one(cache)
        assert not archive.exists(), "nothing is used of a killed one"
        # Two at once: one after the other.
        other = threading.Thread(target=lambda: others.append(subprocess.run([sys.executable, "-c", _PREPARE]).returncode))
        other.start()
    done = CliRunner().invoke(app, ["prepare"])
    assert done.exit_code == 0, done.output
    if is_crowded:
        other.join()
        assert others == [0]
        until(lambda: not _jvms(cache), "the JVM of the killed one ends as well", 120)
    assert not _jvms(cache), "nothing writes any more"
    assert _left(archive) == {archive.name}, "nothing else is left, of the killed one either"
    assert found_by_doctor().found == str(archive)
    # Java uses neither with so large a heap, and must not say so where results are printed.
    for memory, maps in (("2g", True), ("40g", False), ("spoilt", False)):
        if memory == "spoilt":
            archive.chmod(0o644)
            archive.write_bytes(b"none")
        else:
            monkeypatch.setenv("RELSTATE_DRIVER_MEMORY", memory)
        said = subprocess.run([sys.executable, "-c", _MAPPED], capture_output=True, text=True, check=True)
        lines = said.stdout.splitlines()
        assert (len(lines), str(archive) in lines[0]) == (1, maps), (memory, said)


def _kill_one(cache: Path) -> None:
    """Kill one that has begun; its JVM goes on for a while."""
    killed = subprocess.Popen([sys.executable, "-c", _PREPARE])
    until(lambda: _jvms(cache), "a JVM has begun", 120)
    killed.send_signal(signal.SIGKILL)
    killed.wait()


@_NEEDS_PROC
@pytest.mark.spark
def test_a_cache_that_is_half_written_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = _from_wheel()
    if java is None or java.release < 25:
        pytest.skip("no Java that writes by another process")
    monkeypatch.setenv("JAVA_HOME", str(java.home))
    monkeypatch.setattr(prepare_module, "_TRAINING", "SELECT 1")

    def kill_the_writer() -> None:
        until(lambda: [*cache.glob("classes/prepare-*/*.aot")], "it writes", 120)
        for pid in _jvms(cache):
            if b"AOTMode=create" in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_writer)
    killer.start()
    with pytest.raises(EnvironmentProblem, match="wrote no archive"):
        prepare_module.prepare()
    killer.join()
    assert _left(class_archive(java)) == set()
