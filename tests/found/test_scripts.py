"""Scripts of findings from outside use, checked statement by statement."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from relstate_dagster.jobs.declare.statements import Statement, split_statements
from relstate_dagster.jobs.script.shown import rows_shown
from tests.epoch.scripts import Script

_FOLDER = Path(__file__).parent
_EXPECTATION = re.compile(r"--\s*(rows|error):\s*(.*)")


@pytest.mark.parametrize("name", sorted(path.name for path in _FOLDER.glob("*.sql")))
def test_script(name: str, spark: SparkSession, tmp_path: Path) -> None:
    text = (_FOLDER / name).read_text(encoding="utf-8")
    script = Script(spark, tmp_path / "warehouse")
    for statement in split_statements(text, name):
        _run(script, statement, _expectation(text, statement))
    script.verify()
    script.session.close()


def _run(script: Script, statement: Statement, expected: tuple[str, str] | None) -> None:
    if expected is not None and expected[0] == "error":
        error = script.error(statement.text)
        assert re.search(expected[1], str(error)), f"{statement.where}: {error}"
        return
    (result,) = script.run(statement.text)
    if expected is not None:
        shown = [" | ".join("NULL" if value is None else value for value in row) for row in rows_shown(result, as_json=False)]
        wanted = [row.strip() for row in expected[1].split(";") if row.strip()]
        assert sorted(shown) == sorted(wanted), statement.where


def _expectation(text: str, statement: Statement) -> tuple[str, str] | None:
    """The kind and text of the expectation in the comments directly above a statement."""
    for line in reversed(text.splitlines()[: statement.line - 1]):
        if not line.startswith("--"):
            return None
        if match := _EXPECTATION.fullmatch(line.strip()):
            return match.group(1), match.group(2)
    return None
