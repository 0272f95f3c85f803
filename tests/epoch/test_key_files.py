"""Primary keys of a whole table, checked by groups of files that share keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.sources.key_files import files_that_share_keys, problem_in_files
from state_lib.delta_files import DataFile, data_files

Keys = Sequence[tuple[int | None, int]]


def _files(folder: Path, contents: Sequence[Keys]) -> tuple[DataFile, ...]:
    for keys in contents:
        orders, lines = ([row[n] for row in keys] for n in (0, 1))
        write_deltalake(
            str(folder), pa.table({"o": pa.array(orders, pa.int64()), "l": pa.array(lines, pa.int64())}), mode="append"
        )
    return data_files(DeltaTable(str(folder)))


@pytest.mark.parametrize(
    ("contents", "groups", "problem"),
    [
        # The lines of an order in two files, and in three.
        ([[(1, 1), (2, 1)], [(2, 2), (3, 1)], [(4, 1)]], 3, None),
        ([[(1, 1), (2, 1)], [(2, 2)], [(2, 3), (3, 1)]], 3, None),
        ([[(1, 1), (2, 1)], [(2, 2)], [(2, 1), (3, 1)]], 3, "2 rows have o = 2, l = 1"),
        ([[(2, 1), (3, 1)], [(1, 1), (2, 1)]], 2, "2 rows have o = 2, l = 1"),
        ([[(1, 1), (9, 1)], [(3, 1), (4, 1)], [(4, 1), (10, 2)]], 1, "2 rows have o = 4, l = 1"),
        ([[(1, 1), (1, 1)], [(5, 1)]], 2, "2 rows have o = 1, l = 1"),
        ([[(1, 1), (2, 2)], [(3, 1), (None, 4)]], 2, "a row has a NULL in it (o = None, l = 4)"),
    ],
)
def test_keys_across_files(tmp_path: Path, contents: Sequence[Keys], groups: int, problem: str | None) -> None:
    files = _files(tmp_path, contents)
    assert len(files_that_share_keys(files, "o")) == groups
    found = problem_in_files(str(tmp_path), files, ("o", "l"))
    assert (None if found is None else str(found)) == problem
