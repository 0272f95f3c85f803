"""An opened Delta table while others write, delete and make it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from relstate_dagster.state_lib.lake.table import OpenedTable, TableNotFoundError


def _make(path: Path, column: str, versions: int) -> None:
    for n in range(versions):
        write_deltalake(path, pa.table({column: [n]}), mode="append")


@pytest.mark.parametrize("again", [1, 3, 5], ids=["fewer versions", "as many", "more"])
@pytest.mark.parametrize("asked", [None, 0, 2], ids=["newest", "first", "third"])
def test_a_table_made_again_is_opened_again(tmp_path: Path, again: int, asked: int | None) -> None:
    path = tmp_path / "t"
    _make(path, "old", 3)
    opened = OpenedTable(str(path))
    first = opened.at(asked)
    assert opened.at(asked) is first, "what is open is not opened again"
    shutil.rmtree(path)
    with pytest.raises(TableNotFoundError):
        opened.at(asked)
    _make(path, "new", again)
    version = again - 1 if asked is None else min(asked, again - 1)
    assert opened.at(None if asked is None else version).schema().fields[0].name == "new"
    assert opened.latest().version() == again - 1


def test_a_table_put_back_from_a_copy_is_opened_again(tmp_path: Path) -> None:
    path, copy = tmp_path / "t", tmp_path / "copy"
    _make(path, "k", 2)
    shutil.copytree(path, copy)
    _make(path, "k", 2)
    opened = OpenedTable(str(path))
    assert opened.latest().version() == 3
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    assert opened.latest().version() == 1
    _make(path, "k", 1)
    assert opened.latest().version() == 2


def test_a_version_that_a_commit_was_made_on_is_given_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t"
    _make(path, "k", 3)
    opened = OpenedTable(str(path))
    write_deltalake(opened.at(2), pa.table({"k": [3]}), mode="append")
    assert [opened.at(version).version() for version in (2, 3, 0)] == [2, 3, 0]
