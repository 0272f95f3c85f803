"""Inserted and deleted rows of commits, counted in their files.

Operation metrics are not asked: each writer has its own names for them, and some write none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from relstate_dagster.jobs.sources.change_files import CHANGE_TYPE, INSERTIONS
from relstate_dagster.state_lib.lake.address import full_path
from relstate_dagster.state_lib.lake.log import Action, files_of, logged_rows, marked_rows
from relstate_dagster.state_lib.lake.parquet import footer_rows, value_counts
from relstate_dagster.state_lib.tuning import tuning


@dataclass
class RowCounts:
    """Counts the rows of some commits in a row.

    Parameters
    ----------
    table : where the table lies.
    rows_before : gives the rows of files before the first commit, by path; asked only if many files were removed.
    """

    table: str
    rows_before: Callable[[], Mapping[str, int]]
    _added: dict[str, int] = field(default_factory=dict)

    @cached_property
    def _before(self) -> Mapping[str, int]:
        return self.rows_before()

    def changed(self, actions: list[Action]) -> tuple[int, int]:
        """Rows inserted and deleted by the next commit; an update is one of each."""
        recorded, adds, removes = files_of(actions)
        added = dict(zip((a["path"] for a in adds), self._rows_of_added(adds), strict=True))
        self._added |= added
        if recorded:
            counts = value_counts([full_path(self.table, f["path"]) for f in recorded], CHANGE_TYPE)
            inserted = sum(counts[kind] for kind in INSERTIONS)
            return inserted, sum(counts.values()) - inserted
        marks_before = {r["path"]: marked_rows(r) for r in removes}
        inserted = deleted = 0
        for add in adds:
            path, marked = add["path"], marked_rows(add)
            if path in marks_before:
                # The same file with other rows marked as deleted.
                newly = marked - marks_before.pop(path)
                deleted, inserted = deleted + max(newly, 0), inserted + max(-newly, 0)
            else:
                inserted += added[path] - marked
        gone = self._rows_of_removed(list(marks_before))
        return inserted, deleted + sum(gone[path] - marked for path, marked in marks_before.items())

    def _rows_of_added(self, adds: list[Action]) -> list[int]:
        logged = [logged_rows(add) for add in adds]
        unknown = [add["path"] for add, rows in zip(adds, logged, strict=True) if rows is None]
        read = iter(footer_rows([full_path(self.table, path) for path in unknown]))
        return [next(read) if rows is None else rows for rows in logged]

    def _rows_of_removed(self, paths: list[str]) -> dict[str, int]:
        known = {path: self._added[path] for path in paths if path in self._added}
        if len(paths) - len(known) > tuning().footer_files:
            known |= {path: self._before[path] for path in paths if self._before.get(path, -1) >= 0}
        unknown = [path for path in paths if path not in known]
        read = footer_rows([full_path(self.table, path) for path in unknown])
        return known | dict(zip(unknown, read, strict=True))
