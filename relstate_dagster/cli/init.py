"""``relstate init``: a project to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Final

import typer

from relstate_dagster.cli.app import app, output
from relstate_dagster.starter import STARTER
from relstate_dagster.state_lib.errors import DeclarationError

_FILES: Final = {
    **STARTER,
    ".gitignore": "warehouse/\ndagster_home/*\n!dagster_home/dagster.yaml\n",
    "workspace.yaml": """\
# RELSTATE_PROJECT=. RELSTATE_WAREHOUSE=warehouse DAGSTER_HOME=$PWD/dagster_home dagster dev
load_from:
  - python_module: relstate_dagster.definitions
""",
    "pyproject.toml": """\
# What dg reads: in this folder, `dg dev`, `dg check defs` and `dg launch --assets '*'` serve the views beside this file.
[project]
name = "relstate-views"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["relstate-dagster"]

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "code_location"
code_location_target_module = "code_location.definitions"
""",
    "code_location/__init__.py": "",
    "code_location/definitions.py": """\
from pathlib import Path

from dagster import in_process_executor
from relstate_dagster import build_definitions

_FOLDER = Path(__file__).parent.parent

# All views are one step: Dagster's own executor would start a second process for it, which takes as long as many a run.
defs = build_definitions(_FOLDER, warehouse=_FOLDER / "warehouse", executor=in_process_executor)
""",
}


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="a new or empty folder")]) -> None:
    """Make a project with a source, a view and its test, in a new folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeclarationError(f"{folder} is there and not empty: name a new folder.")
    instance = resources.files("relstate_dagster").joinpath("dagster.yaml").read_text(encoding="utf-8")
    for name, text in {**_FILES, "dagster_home/dagster.yaml": instance}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        output.print(f"made {path}", markup=False, soft_wrap=True)
