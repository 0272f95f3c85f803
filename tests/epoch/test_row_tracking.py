"""Ids of rows are used only where the log has them for every file."""

from __future__ import annotations

from typing import Any

import pytest

from relstate_dagster.jobs.sources.commit_range import CommitRange
from relstate_dagster.jobs.sources.row_tracking import FirstRow, RowTracking
from relstate_dagster.state_lib.lake.log import TableFacts

_ON = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}


def _between(actions: list[dict[str, Any]], before: dict[str, str], after: dict[str, str]) -> RowTracking | None:
    commits = CommitRange(None)
    commits.note(actions)
    facts = [TableFacts(n, "t", "{}", properties, ()) for n, properties in enumerate((before, after))]
    return RowTracking.between(*facts, commits.first_rows, ["a", "b"])


def _add(path: str, **ids: int) -> dict[str, Any]:
    return {"add": {"path": path, **ids}}


_A, _B = (
    _add("a", baseRowId=0, defaultRowCommitVersion=1),
    {"remove": {"path": "b", "baseRowId": 7, "defaultRowCommitVersion": 2}},
)


def test_ids_of_added_and_removed_files() -> None:
    unsaid = {"remove": {"path": "a"}}
    found = _between([_A, _B, _A, unsaid], _ON, _ON)
    assert found == RowTracking("_id", "_version", {"a": FirstRow(0, 1), "b": FirstRow(7, 2)})


@pytest.mark.parametrize(
    ("actions", "before", "after"),
    [
        pytest.param([_A], _ON, _ON, id="a file without commit"),
        pytest.param([_A, _add("b", baseRowId=7)], _ON, _ON, id="a file without version"),
        pytest.param([_A, _B, _add("a", baseRowId=9, defaultRowCommitVersion=1)], _ON, _ON, id="two ids of a file"),
        pytest.param([_A, _B], {**_ON, "delta.enableRowTracking": "false"}, _ON, id="not tracked before"),
        pytest.param([_A, _B], _ON, {**_ON, "delta.rowTracking.materializedRowIdColumnName": "_other"}, id="another column"),
        pytest.param([_A, _B], {"delta.enableRowTracking": "true"}, {"delta.enableRowTracking": "true"}, id="no columns"),
    ],
)
def test_ids_that_are_not_known(actions: list[dict[str, Any]], before: dict[str, str], after: dict[str, str]) -> None:
    assert _between(actions, before, after) is None
