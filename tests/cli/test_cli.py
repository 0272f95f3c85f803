"""The verbs that need no Spark, as a person calls them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tomlkit
from typer.testing import CliRunner

from relstate_dagster.cli import app, main
from relstate_dagster.cli import doctor as doctor_module
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.state_lib.errors import EnvironmentProblem


@pytest.fixture
def relstate():
    return lambda *arguments: CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_help_lists_the_verbs(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["relstate", "--help"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    for verb in (
        "init",
        "doctor",
        "demo",
        "diff",
        "explain",
        "run",
        "verify",
        "check",
        "test",
        "status",
        "state",
        "sql",
        "compact",
        "vacuum",
        "why",
        "prepare",
        "repair",
    ):
        assert f" {verb} " in said


def test_init_makes_a_project_that_loads(relstate, tmp_path):
    folder = tmp_path / "new"
    assert relstate("init", str(folder)).exit_code == 0
    project = load_project(folder, exists=lambda _: False)
    assert [view.name for view in project.views] == ["sales_by_customer"]
    assert project.sources[0].primary_key == ("order_id",)


def test_what_init_makes_is_a_project_of_dg(relstate, tmp_path, monkeypatch):
    """As dg reads it: a module in the folder, with definitions, and nothing that is made by loading them."""
    assert relstate("init", str(tmp_path / "new")).exit_code == 0
    settings = tomlkit.parse((tmp_path / "new" / "pyproject.toml").read_text())
    dg = settings["tool"]["dg"]
    assert (dg["directory_type"], set(dg["project"])) == ("project", {"root_module", "code_location_target_module"})
    assert (tmp_path / "new" / dg["project"]["root_module"] / "__init__.py").exists()
    module = dg["project"]["code_location_target_module"]
    code = f"from {module} import defs; print(defs.resolve_asset_graph().materializable_asset_keys)"
    monkeypatch.chdir(tmp_path / "new")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{AssetKey(['sales_by_customer'])}"
    assert not (tmp_path / "new" / "warehouse").exists()


def test_init_leaves_a_full_folder_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    monkeypatch.setattr("sys.argv", ["relstate", "init", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("DeclarationError: ")
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_doctor_finds_everything_here(relstate):
    result = relstate("doctor")
    assert result.exit_code == 0, result.stdout
    assert "Java" in result.stdout
    assert "4.4.0" in result.stdout


def test_doctor_says_how_to_get_what_is_missing(relstate, monkeypatch):
    def no_java():
        raise EnvironmentProblem("no Java; pip install 'relstate-dagster[jdk]'")

    monkeypatch.setattr(doctor_module, "find_java", no_java)
    result = relstate("doctor")
    assert result.exit_code == 1
    assert "relstate-dagster[jdk]" in result.stdout
