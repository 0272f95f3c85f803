"""Docstrings begin with one short line: a noun phrase, or a verb and its object."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_MOST_WORDS = 15


def _docstrings() -> Iterator[tuple[str, str]]:
    """Places in the code, each with its docstring."""
    for folder in ("jobs", "state_lib", "assets", "relstate_dagster", "benchmarks"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = ast.get_docstring(node)
                    if text:
                        name = "" if isinstance(node, ast.Module) else f": {node.name}"
                        yield f"{path.relative_to(_ROOT)}{name}", text


def test_first_lines_are_short() -> None:
    long = [(place, text) for place, text in _docstrings() if len(text.split("\n\n")[0].split()) > _MOST_WORDS]
    assert not long
