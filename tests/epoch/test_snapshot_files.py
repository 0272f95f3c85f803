"""The files of a source before some changes, without those of today."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from relstate_dagster.jobs.sources.delta_source import DeltaSource

_FEED = {"delta.enableChangeDataFeed": "true"}


def _append(path: str, *keys: int) -> None:
    write_deltalake(path, pa.table({"k": list(keys)}), mode="append", configuration=_FEED)


def _append_then_compact(path: str) -> None:
    _append(path, 5)
    DeltaTable(path).optimize.compact()


def _compact_then_append(path: str) -> None:
    DeltaTable(path).optimize.compact()
    _append(path, 5)


@pytest.mark.parametrize(
    ("change", "rows_before"),
    [
        (lambda _: None, 4),
        (lambda path: _append(path, 5, 6), 4),
        (lambda path: [_append(path, 5), _append(path, 6)], 4),
        (_compact_then_append, 4),
        (_append_then_compact, None),
        (lambda path: DeltaTable(path).delete("k = 1"), None),
        (lambda path: DeltaTable(path).update(predicate="k = 1", new_values={"k": 9}), None),
    ],
    ids=["nothing", "one append", "two appends", "compacted, appended", "appended, compacted", "delete", "update"],
)
def test_files_before(tmp_path: Path, change: Callable[[str], object], rows_before: int | None) -> None:
    path = str(tmp_path / "t")
    _append(path, 1, 2)
    _append(path, 3, 4)
    source = DeltaSource("t", path, ("k",))
    since = source.pin(None)
    change(path)
    until = DeltaSource("t", path, ("k",)).pin(None)
    found = source.check_range(since, until, append_only=False)
    before = source.versions.files_at(until.version).before(found)
    assert (None if before is None else sum(file.rows for file in before.files)) == rows_before
