"""docs/seeds.md names modules and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
_TESTS = {
    name for file in Path(__file__).parent.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
}


def test_modules_and_tests_are_there() -> None:
    paths = re.findall(r"`([\w./]+\.(?:py|md))`", _PAGE)
    assert len(paths) > 20
    assert [p for p in paths if not (_ROOT / p).exists()] == []
    named = set(re.findall(r"`(test_\w+)`", _PAGE))
    assert named <= _TESTS
    # And none is left out.
    assert named >= _TESTS - {"test_modules_and_tests_are_there"}
