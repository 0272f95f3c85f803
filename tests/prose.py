"""Sentences of the docs, of docstrings and of messages, for the test of English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_CODE = ("jobs", "state_lib", "assets", "relstate_dagster", "benchmarks")
#: The values of an f-string count as one word each.
_VALUE = "…"
_FENCE = re.compile(r"^\s*(```|~~~)")
#: Lines that are no prose: tables, headings, HTML, images, rules.
_NO_PROSE = re.compile(r"^\s*(\||#|<|!\[|[-=]{3,}\s*$|```|~~~)")
#: The beginning of a list item, or of a parameter in a docstring.
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+|^\s*(?=\*{0,2}[\w`]+(?:, \*{0,2}[\w`]+)* : )")
#: The first line of a table in a docstring, until an empty line.
_TABLE = re.compile(r"^\s*=+(\s+=+)+\s*$")
#: An exception or a type, whose description is below it and indented.
_NAME = re.compile(r"^\s*[\w.`:]+\s*$")
#: Paragraphs that are indented as far are code.
_CODE_INDENT = 4
_SPAN = re.compile(r"`+[^`]+`+|\[[^\]]*\]\([^)]*\)")
_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')*])|(?<=[.!?][\"')*]{2})|(?<=::))\s+")
_LOGS = {"debug", "info", "warning", "error", "exception", "warn", "echo", "print"}
_HELP = {"help", "short_help", "epilog", "description"}


def pages() -> Iterator[Path]:
    """Pages of the documentation."""
    yield from (ROOT / "README.md", ROOT / "benchmarks" / "README.md")
    yield from sorted((ROOT / "docs").rglob("*.md"))


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Modules of the product and of its benchmarks, parsed."""
    for folder in _CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def sentences(text: str) -> Iterator[str]:
    """Sentences of Markdown or of a docstring, without code blocks, tables and headings."""
    for block in _blocks(text):
        # Spaces in code and in the text of a link neither end a sentence nor make another word of a code.
        kept = _SPAN.sub(lambda span: span[0].replace(" ", "\x00"), block)
        yield from (sentence.replace("\x00", " ") for sentence in _END.split(kept) if sentence)


def words(sentence: str) -> int:
    """Number of words; inline code is one word, a link counts by its text."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
    text = re.sub(r"`+[^`]+`+", "code", text)
    return sum(bool(re.search(r"\w|…", word)) for word in text.split())


def headings(text: str) -> list[str]:
    """Headings of a page."""
    return re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)


def docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Docstrings, each with the name that it documents."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield "" if isinstance(node, ast.Module) else node.name, text


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts of errors, log lines and command line help, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            given: list[ast.expr] = [*node.exc.args, *(k.value for k in node.exc.keywords)]
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [*node.args] if name in _LOGS else []
            given += [k.value for k in node.keywords if k.arg in _HELP]
        else:
            continue
        for value in given:
            yield from ((node.lineno, text) for text in _texts(value))


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """All texts of a module, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant):
        if isinstance(value.value, str):
            yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else _VALUE for part in value.values)
    else:
        for child in ast.iter_child_nodes(value):
            if isinstance(child, ast.expr):
                yield from _texts(child)


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, list items and parameters, each as one line."""
    lines: list[str] = []
    for line in [*_prose_lines(text), ""]:
        item = _ITEM.match(line)
        if lines and (item or not line):
            yield " ".join(lines)
            lines = []
        if line:
            lines.append((line[item.end() :] if item else line).strip())


def _prose_lines(text: str) -> Iterator[str]:
    """Lines of prose; an empty line for each line of code, of a table, of a heading, and between paragraphs."""
    is_fenced = is_table = False
    code_indent: int | None = None
    lines = text.splitlines()
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        indent = _indent(line)
        is_fenced ^= bool(_FENCE.match(line))
        if line.strip():
            is_table |= bool(_TABLE.match(line))
            if code_indent is not None and indent < code_indent:
                code_indent = None
            elif code_indent is None and indent >= _CODE_INDENT and not before.strip():
                code_indent = indent
        else:
            is_table = False
        is_name = _NAME.match(line) and _indent(after) > indent
        is_prose = not (is_fenced or is_table or code_indent is not None or is_name or _NO_PROSE.match(line))
        yield line if is_prose and line.strip() else ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
