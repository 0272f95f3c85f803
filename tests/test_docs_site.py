"""The docs as a site: every link leads somewhere, all options and properties are in it, its tutorial is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession

from relstate_dagster.assets.metadata import EPOCH_METADATA
from relstate_dagster.cli import app
from relstate_dagster.jobs.declare.changelogs import SOURCE_PROPERTIES
from relstate_dagster.jobs.declare.model import VIEW_PROPERTIES
from relstate_dagster.jobs.plan.picture import plan_svg
from tests.epoch.scripts import Script

_ROOT = Path(__file__).parent.parent


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=_ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "cli" / "index.html").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"relstate {name}" in page
        assert all(option in page for parameter in command.params for option in parameter.opts if option.startswith("-"))
    page = (tmp_path / "metadata" / "index.html").read_text(encoding="utf-8")
    assert all(f"<code>{name}</code>" in page for name in EPOCH_METADATA)
    assert "Two commands" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_every_property_is_in_the_reference() -> None:
    page = (_ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    assert [name for name in (*VIEW_PROPERTIES, *SOURCE_PROPERTIES) if f"`{name}`" not in page] == []


@pytest.mark.spark
def test_the_tutorial(spark: SparkSession, tmp_path: Path) -> None:
    page = (_ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    script = Script(spark, tmp_path / "warehouse")
    (tmp_path / "orders").mkdir()
    printed: list[str] = []
    for number, (language, text) in enumerate(blocks):
        if language == "text":
            (tmp_path / "orders" / f"{number}.csv").write_text(text)
        elif language == "sql":
            rows = script.run(text.replace("/data/orders", str(tmp_path / "orders")))[-1].rows
            printed = ["  ".join(map(str, row)) for row in rows]
        else:
            assert printed == text.splitlines()
    entry = script.warehouse.read().views["revenue"]
    drawn, picture = plan_svg(entry.plan, entry.node_tables, entry.rows), _ROOT / "docs" / "revenue.svg"
    if os.environ.get("RELSTATE_UPDATE_GOLDEN"):
        picture.write_text(drawn, encoding="utf-8")
    assert drawn == picture.read_text(encoding="utf-8")
