"""Every block of docs/checks.md, in one folder: SQL is a project, YAML its tests, commands are run, definitions load."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from dagster import Definitions
from typer.testing import CliRunner

import relstate_dagster
from relstate_dagster.cli import app

_DOCS = Path(relstate_dagster.__file__).parents[1] / "docs" / "checks.md"
_BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", _DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_is_true(spark, tmp_path, monkeypatch):
    assert {language for language, _ in _BLOCKS} == {"sql", "yaml", "bash", "python"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELSTATE_PROJECT", "shop")
    monkeypatch.setenv("RELSTATE_WAREHOUSE", "shop_warehouse")
    (tmp_path / "shop").mkdir()
    for language, text in _BLOCKS:
        if language in ("sql", "yaml"):
            (tmp_path / "shop" / {"sql": "shop.sql", "yaml": "by_customer.test.yaml"}[language]).write_text(text)
    said = ""
    for text in [text for language, text in _BLOCKS if language == "bash"]:
        for line in text.splitlines():
            verb, *arguments = shlex.split(line, comments=True)[1:]
            done = CliRunner().invoke(app, [verb, *arguments])
            assert done.exit_code == 0, done.output
            said += done.output
    checks = ("positive", "small", "key", "complete", "known_status", "known_customer", "size", "orders_come_in")
    assert all(name in said for name in checks)
    assert said.count("1 passed, 0 failed") == 2
    (python,) = [text for language, text in _BLOCKS if language == "python"]
    made = {"__name__": "docs"}
    exec(compile(python, "docs", "exec", dont_inherit=True), made)
    Definitions.validate_loadable(made["defs"])
    assert made["defs"].get_repository_def().has_job("orders_come_in")
