"""Lookups in sources as of an epoch, by their files or by an index."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Join, Scan, walk
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.jobs.sources.source_index import SourceIndex
from relstate_dagster.jobs.view_epoch.index_advice import IndexAdvice
from relstate_dagster.jobs.view_epoch.pinned_sources import PinnedSources
from relstate_dagster.state_lib.constants import ROW_ID, WEIGHT
from relstate_dagster.state_lib.lake.statistics import DataFile, row_count
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.tuning import tuning


@dataclass
class SourceLookups:
    """Rows of a view's sources as of an epoch, by values of a column.

    Parameters
    ----------
    advice : what is noted of costly lookups.
    """

    pinned: PinnedSources
    advice: IndexAdvice = field(default_factory=IndexAdvice)

    @cached_property
    def used_columns(self) -> dict[str, set[str]]:
        """At least the columns that the view reads of each relation."""
        assert self.pinned.view.plan is not None
        return used_columns(self.pinned.view.plan)

    def advice_lines(self) -> tuple[str, ...]:
        """Advice of an epoch: new columns of sources, and indexes that would help."""
        view, catalog = self.pinned.view, self.pinned.catalog
        selected = [n for n in view.reads if n in catalog.sources and "*" in view.query and self.pinned.reads_all_columns(n)]
        added = {name: self.pinned.new_columns(name) for name in selected}
        new = [
            f"source {name} has new columns ({', '.join(columns)}): where view {view.name} selects *, it has them once it is "
            f"rebuilt with --full-refresh {view.name}"
            for name, columns in added.items()
            if columns
        ]
        return (*new, *self.advice.lines())

    def rows(self, spark: SparkSession, name: str, lookup_keys: LookupKeys | None) -> DataFrame:
        """Rows of a source and ``_weight``.

        With keys, those within their values at least.
        """
        place = None if lookup_keys is None else self._lookup_place(name, lookup_keys)
        if lookup_keys is not None and isinstance(place, SourceIndex):
            return self.pinned.as_planned(name, self._indexed(spark, name, place, lookup_keys))
        own = self.files(name)
        made = self.pinned.generated_columns(name) - {ROW_ID}
        if made or not own.are_rows:
            rows = self.pinned.source(name).all_rows(spark, self.pinned.pin(name), made)
            return self.pinned.as_planned(name, rows)
        if lookup_keys is not None:
            self._advise(name, own, lookup_keys)
        return self.pinned.as_planned(name, _weighted(own.read(spark, lookup_keys)))

    def provably_absent_before(self, name: str, lookup_keys: LookupKeys) -> bool:
        """Whether no row of the view's last epoch is within some values.

        False if the log does not tell.
        """
        since = self.pinned.since
        if since is None:
            return False
        old = self.files(name).before(self.pinned.range(name, self.pinned.pin_of(since, name)))
        return old is not None and not old.files_with(lookup_keys)

    def row_count(self, name: str) -> int | None:
        """Rows of a source, also those only marked as deleted.

        ``None`` if the log does not tell.
        """
        found = self.files(name)
        return row_count(found.files) if found.are_rows else None

    def rows_read(self, name: str, lookup_keys: LookupKeys | None) -> float | None:
        """About how many rows a lookup of some values reads.

        ``None`` if the log does not tell.
        """
        count = self.row_count(name)
        return count if count is None or lookup_keys is None else self._lookup_place(name, lookup_keys).rows_read(lookup_keys)

    def sample(self, spark: SparkSession, name: str) -> tuple[DataFrame, int] | None:
        """Rows of one file of a source with ``_weight``, and their number.

        ``None`` if the log does not tell.
        """
        if not self.row_count(name):
            return None
        some = self.files(name).sample(tuning().sample_rows)
        return self.pinned.as_planned(name, _weighted(some.read(spark, None))), row_count(some.files) or 0

    def files(self, name: str) -> SnapshotFiles:
        """The files of a source as of this epoch, listed once in a run."""
        return self.pinned.source(name).files(self.pinned.pin(name))

    def in_place_files(self) -> tuple[DataFile, ...]:
        """The files of the sources that joins look rows up in."""
        assert self.pinned.view.plan is not None
        sides = (
            side
            for join in walk(self.pinned.view.plan)
            if isinstance(join, Join)
            for side, there in ((join.left, join.left_in_place), (join.right, join.right_in_place))
            if there
        )
        names = {scan.relation for side in sides for scan in walk(side) if isinstance(scan, Scan)}
        return tuple(file for name in sorted(names - self.pinned.catalog.views.keys()) for file in self.files(name).files)

    def _lookup_place(self, name: str, lookup_keys: LookupKeys) -> SnapshotFiles | SourceIndex:
        """Files of a source, or an index that reads far fewer rows."""
        pinned, own = self.pinned, self.files(name)
        entry = pinned.catalog.sources.get(name)
        if entry is None or lookup_keys.column not in entry.indexes:
            return own
        index = pinned.reads.index(pinned.warehouse, entry, lookup_keys.column)
        contents = index.contents
        if contents is None or not contents.serves(pinned.pin(name), self.used_columns[name]):
            return own
        if own.are_rows and tuning().index_fewer * index.rows_read(lookup_keys) > own.rows_read(lookup_keys):
            return own
        since = pinned.changed_since(name, contents.pin)
        return index if since is not None and since.changed_bytes <= tuning().index_change_bytes else own

    def _indexed(self, spark: SparkSession, name: str, index: SourceIndex, lookup_keys: LookupKeys) -> DataFrame:
        """Rows of a source from an index, with the changes since it was written."""
        contents, until = index.contents, self.pinned.pin(name)
        assert contents is not None
        rows, found = index.read(spark, lookup_keys), self.pinned.range(name, contents.pin)
        changes = self.pinned.source(name).changes(spark, contents.pin, until, found)
        if changes is not None:
            rows = rows.union(changes.select(*columns_of(contents.columns), WEIGHT))
        others = [f for f in struct_of(until.schema_json).fields if f.name not in contents.columns]
        # Pruned, since the view reads none of them; if it did, that would be an error and not a wrong row.
        unread = F.raise_error(F.lit(f"source {name} was read by its index by {index.column}, which lacks a column"))
        return rows.select("*", *(unread.cast(f.dataType).alias(f.name) for f in others))

    def _advise(self, name: str, own: SnapshotFiles, lookup_keys: LookupKeys) -> None:
        """Note the rows that a lookup reads, unless an index could have served it."""
        entry = self.pinned.catalog.sources.get(name)
        if entry is not None and lookup_keys.column not in entry.indexes and self.pinned.view.last_epoch is not None:
            self.advice.saw(name, entry.indexes, own, lookup_keys)


def _weighted(rows: DataFrame) -> DataFrame:
    return rows.withColumn(WEIGHT, F.lit(1).cast("bigint"))
