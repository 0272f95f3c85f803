"""The package as it would be published: its files and metadata, and the README's commands in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from relstate_dagster.jobs.engine.java import find_java
from relstate_dagster.state_lib.errors import EnvironmentProblem
from tests.test_readme import blocks
from tests.wheels import built, called, copied_tree

_LOADED = """
import sys
from importlib.metadata import distribution
found = distribution("relstate-dagster")
assert str(found.locate_file("")).startswith(sys.argv[1]), found.locate_file("")
for entry in found.entry_points:
    loaded = entry.load()
    print(entry.group, entry.name, getattr(loaded, "__file__", None) or sys.modules[loaded.__module__].__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    return built(copied_tree(folder / "tree"), folder / "dist")


def test_the_wheel_has_files_of_all_kinds(wheel: Path) -> None:
    """That it has every single one is in ``test_namespace.py``."""
    with ZipFile(wheel) as packed:
        suffixes = {Path(name).suffix for name in packed.namelist() if ".dist-info/" not in name}
    assert suffixes == {".java", ".properties", ".py", ".sql", ".typed", ".yaml"}


def test_what_the_wheel_says_of_itself(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        (place,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        said = Parser().parsestr(packed.read(place).decode())
        license_text = packed.read(place.replace("METADATA", "licenses/LICENSE")).decode()
    assert re.fullmatch(r"\d+\.\d+\.\d+", said["Version"])
    assert wheel.name == f"relstate_dagster-{said['Version']}-py3-none-any.whl"
    assert (said["License-Expression"], "Apache License" in license_text) == ("Apache-2.0", True)
    classifiers = said.get_all("Classifier")
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)} <= set(classifiers)
    assert "Typing :: Typed" in classifiers
    assert {"demo", "connect", "jdk"} <= set(said.get_all("Provides-Extra"))
    assert said["Description-Content-Type"] == "text/markdown"


def test_the_entry_points_are_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Unpacked, before the editable install of this environment, whose dependencies serve."""
    with ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "there")
    there = str((tmp_path / "there").resolve())
    lines = called([sys.executable, "-W", "ignore", "-c", _LOADED, there], tmp_path, PYTHONPATH=there).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["console_scripts", "relstate"],
        ["dagster_dg_cli.registry_modules", "relstate_dagster"],
    ]
    assert all(line.split()[2].startswith(there) for line in lines), lines


def test_the_source_archive_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = built(copied_tree(tmp_path / "tree"), tmp_path / "dist", "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (tree,) = (tmp_path / "unpacked").iterdir()
    again = built(tree, tmp_path / "again")
    with ZipFile(wheel) as one, ZipFile(again) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def _has_java() -> bool:
    try:
        find_java()
    except EnvironmentProblem:
        return False
    return True


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_readme_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    bin_folder, extras = tmp_path / "venv" / "bin", "demo" if _has_java() else "demo,jdk"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RELSTATE_", "DAGSTER", "PYTHON", "VIRTUAL_ENV"))}
    environment |= {"PATH": f"{bin_folder}:{environment['PATH']}", "COLUMNS": "80"}
    work = tmp_path / "work"
    work.mkdir()

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)

    pip = (str(bin_folder / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    installed = run(*pip, "--upgrade", "pip")
    if installed.returncode == 0:
        installed = run(*pip, f"{wheel}[{extras}]")
    if installed.returncode != 0:
        pytest.skip(f"pip cannot install the dependencies: {installed.stderr.strip().splitlines()[-1:]}")
    where = run("python", "-c", "import relstate_dagster; print(relstate_dagster.__file__)").stdout
    assert where.startswith(str(tmp_path)), where
    for text in [text for text in blocks("bash") if "dagster dev" not in text]:
        done = run("bash", "-euo", "pipefail", "-c", text)
        assert done.returncode == 0, done.stdout + done.stderr
    demo = run("relstate", "demo", "--warehouse", "demo-warehouse", "--days", "1")
    assert demo.returncode == 0, demo.stdout + demo.stderr
