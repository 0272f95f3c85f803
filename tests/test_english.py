"""Docstrings begin with one short line: a noun phrase, or a verb and its object."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_MOST_WORDS = 15
#: Phrases that hide the noun: "what it is" for its name, "comes to" for a result.
_REFUSED = re.compile(
    r"^(what|where|how)\b|\bcom(es?|ing) to\b|\bcame to\b|\btold\b|\bnobody\b|\bof which\b|\bas it is\b", re.I
)


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


def test_first_lines_are_short_and_plain() -> None:
    first = [(place, " ".join(text.split("\n\n")[0].split())) for place, text in _docstrings()]
    assert not [(place, line) for place, line in first if len(line.split()) > _MOST_WORDS]
    assert not [(place, line) for place, line in first if _REFUSED.search(line)]
