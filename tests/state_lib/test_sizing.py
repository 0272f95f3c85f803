"""Sizes: each has its reason, and the environment changes some of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.state_lib import size_settings as module
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.size_settings import SizeSettings, Tuning, current_sizes
from relstate_dagster.state_lib.sizing import sizing
from relstate_dagster.state_lib.tuning import tuning
from tests.sizes import Resized, changed_sizes


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has asked for no size yet."""
    monkeypatch.setattr(module, "_current", None)


@pytest.mark.usefixtures("fresh")
def test_the_environment_changes_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELSTATE_SIZING", " driver_change_bytes = 268435456, listed_share=0.5,")
    expected = asdict(SizeSettings())
    expected["sizing"]["driver_change_bytes"] = 268_435_456
    expected["tuning"]["listed_share"] = 0.5
    assert asdict(current_sizes()) == expected


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("driver_bytes=1", "there is no size 'driver_bytes'; there are driver_change_bytes, "),
        ("page_rows=many", "page_rows is a number, not 'many'"),
        ("page_rows", "page_rows is a number, not ''"),
        ("page_rows=0.5", "page_rows is a number, not '0.5'"),
        ("page_rows=-1", "page_rows is at least 1, not -1"),
        ("listed_keys=-1", "listed_keys is at least 0, not -1"),
        ("task_bytes=0", "task_bytes is at least 1, not 0"),
        ("comparable_change=1", "comparable_change is at least 2, not 1"),
        ("range_share=nan", "range_share is at least 0, not nan"),
    ],
)
def test_what_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, setting: str, problem: str) -> None:
    monkeypatch.setenv("RELSTATE_SIZING", setting)
    with pytest.raises(DeclarationError, match=problem):
        sizing()


@pytest.mark.usefixtures("fresh")
def test_a_runner_refuses_them_before_it_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RELSTATE_SIZING", "no_such_size=1")
    spark: Any = None
    with pytest.raises(DeclarationError, match="there is no size 'no_such_size'"):
        EpochRunner(spark, Warehouse(tmp_path))


def test_sizes_change_for_a_while(resized: Resized) -> None:
    resized(page_rows=7)
    with pytest.raises(TypeError), changed_sizes(no_such_size=1):
        pass
    with changed_sizes(listed_keys=3):
        assert (tuning().page_rows, tuning().listed_keys) == (7, 3)
    assert (tuning().page_rows, tuning().listed_keys) == (7, Tuning().listed_keys)


def test_the_docs_have_every_size() -> None:
    page = Path("docs/sizing.md").read_text()
    assert SizeSettings().table() in page, "docs/sizing.md: paste what SizeSettings().table() gives"
