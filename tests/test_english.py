"""Docs, docstrings and messages are written in short sentences, without phrases that hide the subject."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.prose import ROOT, docstrings, headings, messages, modules, pages, sentences, strings, words

_MOST_WORDS_OF_A_FIRST_LINE = 15
_MOST_WORDS = 30
#: Openings that hide the noun: "what it is" for its name.
_OPENING = re.compile(r"^(what|where|how|who)\b", re.I)
#: Phrases that hide the subject or the verb.
_REFUSED = re.compile(
    r"\bcom(e|es|ing) to\b|\bcame to\b|\btold\b|\b(no|some)body\b|\bof which\b|\bas it is\b|\bwhatever it costs\b"
    r"|\bbe it\b|\banew\b|\bso many\b",
    re.I,
)
#: Names that say nothing; each had a standard term.
_NAMES = frozenset(
    (
        "bring",
        "Done",
        "OneRun",
        "stop_for",
        "computed_side_by_side",
        "first_ended",
        "stale",
        "in_the_way",
        "solved",
        "waiting",
        "Reached",
        "Since",
        "said",
        "take_back",
        "Way",
        "into",
        "noted",
        "taken",
        "living",
        "LeftBehind",
        "made",
        "lives",
        "met_by",
        "at_once",
        "in_one_task",
        "small",
        "carrier_of",
        "agreeing",
        "_told",
        "_tells",
        "Does",
        "way_of_reading",
        "look_at",
        "whatever_it_costs",
    )
)


def _wrong(place: str, text: str) -> Iterator[tuple[str, str]]:
    """Sentences that are too long or have a refused phrase, each with its place."""
    for sentence in sentences(text):
        if words(sentence) > _MOST_WORDS or _REFUSED.search(sentence):
            yield place, sentence


def test_sentences_of_the_docs() -> None:
    assert not [wrong for page in pages() for wrong in _wrong(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))]


def test_headings_of_the_docs() -> None:
    found = [(str(page.relative_to(ROOT)), title) for page in pages() for title in headings(page.read_text(encoding="utf-8"))]
    assert not [(page, title) for page, title in found if _OPENING.search(title) or _REFUSED.search(title)]


def test_sentences_of_docstrings() -> None:
    found = [(f"{path.relative_to(ROOT)}: {name}", text) for path, tree in modules() for name, text in docstrings(tree)]
    assert not [wrong for place, text in found for wrong in _wrong(place, text)]


def test_first_lines_of_docstrings() -> None:
    found = [(f"{path.relative_to(ROOT)}: {name}", text) for path, tree in modules() for name, text in docstrings(tree)]
    first = [(place, " ".join(text.split("\n\n")[0].split())) for place, text in found]
    assert not [(place, line) for place, line in first if len(line.split()) > _MOST_WORDS_OF_A_FIRST_LINE]
    assert not [(place, line) for place, line in first if _OPENING.search(line) or _REFUSED.search(line)]


def test_messages_and_help() -> None:
    found = [(f"{path.relative_to(ROOT)}:{line}", text) for path, tree in modules() for line, text in messages(tree)]
    assert not [wrong for place, text in found for wrong in _wrong(place, text)]
    assert not [(place, text) for place, text in found if _OPENING.search(text)]


def test_no_text_has_a_refused_phrase() -> None:
    found = [(f"{path.relative_to(ROOT)}:{line}", text) for path, tree in modules() for line, text in strings(tree)]
    assert not [(place, text) for place, text in found if _REFUSED.search(text)]


def test_names_are_standard_terms() -> None:
    found = [(f"{path.relative_to(ROOT)}:{line}", name) for path, tree in modules() for line, name in _names(tree)]
    assert not [(place, name) for place, name in found if name in _NAMES]


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name


def test_sentences_are_found() -> None:
    prose, other = "One `a. b` word (see [a. page](x.md#y)). *Two.*\nThree\n\n* four", "```\nfive.\n```\n\n    six\n\n| seven |"
    page = f"# A title\n\n{prose}\n\n{other}\n"
    assert list(sentences(page)) == ["One `a. b` word (see [a. page](x.md#y)).", "*Two.*", "Three", "four"]
    assert [words(sentence) for sentence in sentences(page)] == [6, 1, 1, 1]
    text = "Raises\n------\nStateError\n    One.\nrows : two\n    more.\n\n=== ===\na   three\n=== ==="
    assert list(sentences(text)) == ["Raises", "One.", "rows : two more."]
    tree = ast.parse("raise E(f'no {x} of {y}') from e\n_log.info('a' 'b')\nfield(help='c')")
    assert [text for _, text in messages(tree)] == ["no … of …", "ab", "c"]
