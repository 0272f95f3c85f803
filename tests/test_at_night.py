"""What runs at night is there, and some of it runs by day."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import at_night

_TESTS = Path(__file__).parent


class _Item:
    """A test as pytest has collected it."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid
        self.is_left_out = False

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        assert marker.name == "nightly"
        self.is_left_out = True


def _left_out(items: list[_Item], *arguments: str) -> list[str]:
    at_night.mark(items, list(arguments))
    return [item.nodeid for item in items if item.is_left_out]


def test_the_tables_name_tests_that_are_there() -> None:
    for name in at_night.left_out():
        file, test = name.split("::")
        assert re.search(rf"^def {test}\(", (_TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), name


def test_no_test_is_in_two_tables() -> None:
    whole = [test for tests in at_night.WHOLE.values() for test in tests]
    assert len(set(whole)) == len(whole)
    assert not set(whole) & at_night.ONE_IN.keys()


def test_the_first_case_of_many_runs_by_day() -> None:
    name, one_in = next(iter(at_night.ONE_IN.items()))
    items = [_Item(f"tests/{name}[{number}]") for number in range(2 * one_in)]
    left = _left_out(items, "tests")
    assert [n for n, item in enumerate(items) if item.nodeid not in left] == [0, one_in]


def test_what_is_named_on_the_command_line_runs_at_any_time() -> None:
    for name in at_night.left_out():
        items = [_Item(f"tests/{name}[{number}]") for number in range(3)]
        assert _left_out(items, f"tests/{name}") == []
        assert _left_out(items, "tests/" + name.split("::")[0]) == []
        assert _left_out(items, "tests/epoch", "tests/operators")
