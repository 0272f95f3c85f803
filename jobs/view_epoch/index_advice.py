"""Advice of an epoch: lookups that an index of a source would make much cheaper."""

from __future__ import annotations

from dataclasses import dataclass, field

from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.jobs.sources.source_index import rows_read_of_index
from relstate_dagster.state_lib.lake.statistics import row_count
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.tuning import tuning


@dataclass(slots=True)
class IndexAdvice:
    """Lookups that an undeclared index would make much cheaper."""

    _costly: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _declared: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def saw(self, source: str, declared: tuple[str, ...], files: SnapshotFiles, lookup_keys: LookupKeys) -> None:
        """Note a lookup by a column without an index.

        ``declared`` are the columns with one.
        """
        rows = row_count(files.files) or 0
        if rows < tuning().advised_rows:  # so for most lookups nothing is estimated
            return
        read, with_index = files.rows_read(lookup_keys), rows_read_of_index(rows, len(lookup_keys.values))
        if read >= max(tuning().advised_rows, tuning().advised_times * with_index):
            place = (source, lookup_keys.column)
            self._costly[place] = max((read, with_index), self._costly.get(place, (0.0, 0.0)))
            self._declared[source] = declared

    def lines(self) -> tuple[str, ...]:
        """One sentence for each index that would help.

        Each has the whole property, which replaces the present one.
        """
        columns = dict(self._declared)
        for source, column in sorted(self._costly):
            columns[source] = (*columns[source], column)
        return tuple(
            f"rows of {source} looked up by {column}: about {read:,.0f} were read, {with_index:,.0f} would be with "
            f"'index.columns' = '{', '.join(columns[source])}' in the source's TBLPROPERTIES"
            for (source, column), (read, with_index) in sorted(self._costly.items())
        )
