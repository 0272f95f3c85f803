"""What is installed is one namespace, beside a project's own modules of the same names as our folders."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.wheels import ROOT, built, called, copied_tree, tracked

# What a team calls its modules.
THEIRS = ("assets", "jobs", "state_lib", "tests", "benchmarks")
USES = """
import sys
{imports}
from relstate_dagster import assets as ours, jobs, state_lib
from relstate_dagster.jobs.declare import materialized_view
import relstate_dagster.definitions
assert ours.__name__ == "relstate_dagster.assets"
assert (ours.__path__[0] + "/").startswith({where!r}), ours.__path__
twice = [name for name in sys.modules if name.split(".")[0] in {theirs!r} and sys.modules[name].__file__.startswith({where!r})]
assert not twice, twice
"""
TYPED = """
from relstate_dagster.jobs.api import Warehouse
from relstate_dagster.state_lib.size_settings import Sizing


def catalog(warehouse: Warehouse, sizing: Sizing) -> str:
    return warehouse.catalog
"""
#: Types of other packages and of most of ours are not read: they took half of the time.
UNREAD = """
[mypy-dagster.*,dagster_shared.*,pyspark.*,pandas.*,numpy.*,pyarrow.*,deltalake.*,sqlglot.*,relstate_dagster.jobs.*]
follow_imports = skip
[mypy-relstate_dagster.jobs.api,relstate_dagster.jobs.catalog.*]
follow_imports = normal
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return built(copied_tree(folder / "tree"), folder / "dist")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in THEIRS:
        (folder / f"{name}.py").write_text("OF_THE_TEAM = True\n", encoding="utf-8")
    return folder


def used(project: Path, where: Path, **environment: str) -> None:
    imports = "\n".join(f"import {name}; assert {name}.OF_THE_TEAM" for name in THEIRS)
    (project / "uses.py").write_text(USES.format(imports=imports, theirs=THEIRS, where=str(where) + "/"), encoding="utf-8")
    called([sys.executable, "-W", "ignore", "uses.py"], project, **environment)


def installed_paths() -> Iterator[Path]:
    for entry in map(Path, sys.path):
        yield from entry.glob("__editable__.relstate_dagster-*.pth") if entry.is_dir() else ()


def test_a_wheel_holds_one_package(wheel):
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"relstate_dagster"}
    ours = {file for file in tracked() if not (ROOT / file).is_symlink()}
    wanted = {file if file.startswith("relstate_dagster/") else f"relstate_dagster/{file}" for file in ours}
    assert {name for name in names if ".dist-info/" not in name} == wanted


def test_an_installed_wheel_stands_beside_modules_of_the_same_names(wheel, project, tmp_path):
    ZipFile(wheel).extractall(tmp_path / "site")
    used(project, tmp_path / "site" / "relstate_dagster", PYTHONPATH=str(tmp_path / "site"))


def test_an_editable_install_stands_beside_modules_of_the_same_names(project):
    assert list(installed_paths()), "the package is not installed as editable, as `make test` does it"
    used(project, ROOT / "src" / "relstate_dagster")


def test_type_checkers_follow_an_editable_install(project):
    """A checker that does not run our code finds the package, typed: by a folder on the path, which editors follow as well."""
    (paths,) = (path.read_text(encoding="utf-8").strip() for path in installed_paths())
    assert [path.name for path in Path(paths).iterdir() if path.suffix != ".egg-info"] == ["relstate_dagster"]
    (project / "typed.py").write_text(TYPED, encoding="utf-8")
    (project / "mypy.ini").write_text(f"[mypy]{UNREAD}", encoding="utf-8")
    checked = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(project / "cache"), "typed.py"], cwd=project,
                             text=True, capture_output=True, check=False)  # fmt: skip
    assert "import-not-found" not in checked.stdout
    assert 'got "CatalogStore", expected "str"' in checked.stdout
    assert "Found 1 error" in checked.stdout
