"""What runs at night is there, and some of it runs by day."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import at_night

_TESTS = Path(__file__).parent


class _Item:
    """A test as pytest has collected it."""

    def __init__(self, name: str, case: object = "") -> None:
        self.nodeid = f"tests/{name}[{case}]"
        self.path = _TESTS / name.split("::")[0]
        self.is_left_out = False

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        assert marker.name == "nightly"
        self.is_left_out = True


def _left_out(items: list[_Item], *named: str) -> list[_Item]:
    at_night.mark(items, [str(_TESTS.parent / argument) for argument in named])
    return [item for item in items if item.is_left_out]


def test_the_tables_name_tests_that_are_there() -> None:
    for name in at_night.left_out():
        file, test = name.split("::")
        assert re.search(rf"^def {test}\(", (_TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), name


def test_no_test_is_in_two_tables() -> None:
    whole = [test for tests in at_night.WHOLE.values() for test in tests]
    assert len(set(whole)) == len(whole)
    assert not set(whole) & at_night.ONE_IN.keys()


@pytest.mark.parametrize(("name", "one_in"), at_night.ONE_IN.items(), ids=lambda found: str(found).split("::")[-1])
def test_the_first_case_of_many_runs_by_day(name: str, one_in: int) -> None:
    assert one_in > 1
    items = [_Item(name, number) for number in range(2 * one_in)]
    left = _left_out(items, "tests")
    assert [n for n, item in enumerate(items) if item not in left] == [0, one_in]


def test_a_file_that_is_named_runs_in_full_and_others_do_not() -> None:
    file, other = "operators/test_bits.py", "epoch/test_flows.py"
    for named in (f"tests/{file}", f"tests/{file}::test_rows_that_are_only_added"):
        items = [_Item(f"{file}::test_rows_that_are_only_added", n) for n in range(4)]
        others = [_Item(f"{other}::test_flows_are_what_spark_counts", n) for n in range(3)]
        assert _left_out([*items, *others], named, "tests/epoch") == others[1:]


def test_long_tests_run_at_night_only() -> None:
    items = [_Item(test) for tests in at_night.WHOLE.values() for test in tests]
    assert _left_out([*items, _Item("epoch/test_flows.py::test_another")], "tests") == items
