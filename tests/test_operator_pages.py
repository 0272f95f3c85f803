"""Pages of operators have one form, quote explain as it is and name what is there; links of all documents resolve. No Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relstate_dagster.jobs.operators import routing
from relstate_dagster.jobs.plan.nodes import JOIN_TYPES
from relstate_dagster.state_lib.table_schema import MergeRule, StateKind

_ROOT = Path(__file__).parents[1]
_DOCS = _ROOT / "docs"
_OVERVIEW = _DOCS / "operators.md"
_PAGES = sorted((_DOCS / "operators").glob("*.md"))
_LINKING = [_ROOT / "README.md", *sorted(_DOCS.rglob("*.md"))]
_GOLDEN = [path.read_text(encoding="utf-8") for path in (_ROOT / "tests" / "golden").glob("*.txt")]
_HEADINGS = ["Change", "State", "Cost", "Example", "Limits", "Code"]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FORM_OF_JOIN_STATE = "one of the [three forms](inner-join.md#state)"


def _prose(text: str) -> str:
    return _BLOCK.sub("", text)


def _parts(page: Path) -> dict[str, str]:
    """What is below each heading of the second level, and above the first of them."""
    above, *rest = re.split(r"^## (.+)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": above, **dict(zip(rest[::2], rest[1::2], strict=True))}


def _anchors(page: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub names them."""
    titles = re.findall(r"^#+ (.+)$", _prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


_by_name = pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)


@_by_name
def test_form(page: Path) -> None:
    parts = _parts(page)
    assert list(parts) == ["", *_HEADINGS]
    title, text = parts[""].strip().split("\n\n")
    assert re.fullmatch(r"# \S.*", title)
    first, second = re.split(r"(?<=\.)\s+", text)
    assert re.search(r"\brequires?\b", first), first
    assert re.search(r"\bguarantees?\b", second), second
    assert all(content.strip() for content in parts.values())
    assert [line for line in _prose(page.read_text(encoding="utf-8")).splitlines() if len(line) > 128] == []


@_by_name
def test_state_is_of_known_kinds(page: Path) -> None:
    lines = [line for line in _parts(page)["State"].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|--")]
    kinds = {*(kind.value for kind in StateKind), _FORM_OF_JOIN_STATE}
    for _, kind, _, merge in (row for row in rows if row[0] != "state table"):
        assert kind in kinds
        assert merge in {rule.value for rule in MergeRule}
    assert rows or _parts(page)["State"].strip() == "none"


@_by_name
def test_examples_are_golden(page: Path) -> None:
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    assert _BLOCK.findall(_parts(page)["Example"]) == blocks
    assert [language for language, _ in blocks] == ["sql", ""] * (len(blocks) // 2)
    for (_, query), (_, plan) in zip(blocks[::2], blocks[1::2], strict=True):
        assert any(text.startswith(f"{query}\n") and plan in text for text in _GOLDEN), plan
    assert blocks


@_by_name
def test_what_is_named_is_there(page: Path) -> None:
    code = _parts(page)["Code"]
    assert re.search(r"`jobs/operators/\w+\.py`", code)
    assert re.search(r"`tests/[\w/]+\.py`", code)
    named = re.findall(r"`((?:jobs|state_lib|tests|docs)/[^`]*)`", page.read_text(encoding="utf-8"))
    assert [path for path in named if not (_ROOT / path).exists()] == []


def test_every_node_is_on_a_page() -> None:
    code = "".join(_parts(page)["Code"] for page in _PAGES)
    nodes = [node.__name__ for node in routing._OPERATORS]
    assert [name for name in (*nodes, "Join", *JOIN_TYPES) if f"`{name}`" not in code] == []


def test_the_overview_has_every_page() -> None:
    linked = set(re.findall(r"\]\(operators/([\w-]+)\.md", _OVERVIEW.read_text(encoding="utf-8")))
    assert linked == {page.stem for page in _PAGES}


@pytest.mark.parametrize("document", _LINKING, ids=lambda path: str(path.relative_to(_ROOT)))
def test_links_resolve(document: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _prose(document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []
