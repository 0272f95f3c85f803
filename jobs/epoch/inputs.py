"""The inputs of one view's epoch: change sets of its sources and upstream views between its last epoch and this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.catalog.entries import CatalogState, EpochEntry, ViewEntry, ViewVersions
from jobs.epoch.index_advice import IndexAdvice
from jobs.epoch.shared_reads import ReadKey, SourceReads, scanned_columns
from jobs.operators.context import columns_of
from jobs.planner.nodes import Join, Scan, quoted, walk
from jobs.planner.used_columns import used_columns
from jobs.relations import state_column, view_columns
from jobs.sources.delta_source import ChangeRange, DeltaSource, Pin
from jobs.sources.file_layout import struct_of
from jobs.sources.snapshot_files import SnapshotFiles, snapshot_files
from jobs.sources.source_index import SourceIndex
from jobs.warehouse import Warehouse
from state_lib.constants import EPOCH, ROW_ID, STATE_WEIGHT, WEIGHT
from state_lib.delta_files import row_count
from state_lib.errors import EpochError, SourceError
from state_lib.opened_table import OpenedTable
from state_lib.state_files import StateFiles
from state_lib.state_store import StateStore
from state_lib.within import Within

#: Up to this many changed bytes (as files in the log) a change set is sent to every task, and what comes of it is
#: written and committed by the driver.
SMALL_CHANGE_BYTES = 64 * 1024 * 1024
#: A sample has at least so many rows, if the source has.
_SAMPLE_ROWS = 100_000
#: An index is worth it where so many times the rows are read without it: what changed since is read as well.
_FEWER: Final = 2
#: Up to this many bytes of sources a backfill is computed step by step, as an epoch is.
_COLLECTED_BACKFILL_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class EpochInputs:
    """Change sets for one view at one epoch.

    Parameters
    ----------
    versions : what the upstream views have come to in this epoch, and in the epochs before.
    state_is_large : whether reading the view's state costs more than the jobs it takes to skip most of it.
    reads : what the views of a run share of what they read of sources.
    advice : what this epoch says of its lookups.
    """

    spark: SparkSession
    warehouse: Warehouse
    catalog: CatalogState
    view: ViewEntry
    epoch: EpochEntry
    versions: Mapping[str, ViewVersions]
    rows_in: dict[str, tuple[int, int]] = field(default_factory=dict)
    changed_bytes: int = 0
    state_is_large: bool = False
    reads: SourceReads = field(default_factory=SourceReads)
    advice: IndexAdvice = field(default_factory=IndexAdvice)
    _used: dict[str, set[str]] = field(default_factory=dict)

    @property
    def is_backfill(self) -> bool:
        """Whether the view has reached no epoch yet."""
        return self.view.last_epoch is None

    @property
    def since(self) -> EpochEntry | None:
        """The epoch that the view reached last."""
        last = self.view.last_epoch
        if last is None:
            return None
        entry = self.catalog.epochs.get(last)
        if entry is None:
            raise EpochError(f"epoch {last} of view {self.view.name} is not in the catalog; rebuild with --full-refresh")
        return entry

    @property
    def is_small(self) -> bool:
        """Whether little enough changed for the driver to hold it."""
        return self.changed_bytes <= SMALL_CHANGE_BYTES

    @property
    def collects(self) -> bool:
        """Whether change sets with several readers are computed one by one and held by the driver.

        A job for each, and worth it: plans stay small, lookups know what they look for, and what turns out to be empty
        is not looked up at all.
        """
        return self.changed_bytes <= (_COLLECTED_BACKFILL_BYTES if self.is_backfill else SMALL_CHANGE_BYTES)

    @property
    def lookup_hint(self) -> str | None:
        """How change sets are joined with state."""
        if not self.is_small:
            return None
        return "broadcast" if self.state_is_large else "shuffle_hash"

    def total_bytes(self) -> int:
        """Bytes of all that the view reads as of this epoch, as files."""
        total = 0
        for name in self.view.reads:
            if name in self.catalog.views:
                total += OpenedTable(self.warehouse.view_path(name)).total_bytes(self.versions[name].view_version)
            else:
                total += self.source(name).table.total_bytes(self._pin(self.epoch, name).version)
        return total

    def check(self) -> dict[str, ChangeRange]:
        """Look at what changed, and raise before anything is written if it cannot be read."""
        found: dict[str, ChangeRange] = {}
        since = self.since
        for name in self.view.reads:
            if name in self.catalog.views:
                continue
            if since is None:
                self.changed_bytes += self.source(name).table.total_bytes(self._pin(self.epoch, name).version)
                continue
            found[name] = self._range(name, self._pin(since, name), self._pin(self.epoch, name))
            self.rows_in[name] = (found[name].rows_inserted, found[name].rows_deleted)
            self.changed_bytes += found[name].changed_bytes
        return found

    def scan(self, name: str) -> DataFrame | None:
        """The change set of a source or an upstream view."""
        if name in self.catalog.views:
            return self._view_changes(name)
        source = self.source(name)
        columns = scanned_columns(self.view)[name]
        until, with_row_id = self._pin(self.epoch, name), ROW_ID in columns
        since = self.since
        if since is None:
            return source.all_rows(self.spark, until, with_row_id=with_row_id)
        before = self._pin(since, name)
        if before.version == until.version:
            return None
        found = self._range(name, before, until)
        return self.reads.shared.changes(
            self.spark,
            ReadKey(name, before.version, until.version, with_row_id),
            found.changed_bytes,
            columns,
            lambda: source.changes(self.spark, before, until, found, with_row_id=with_row_id),
        )

    def rows_now(self, name: str, within: Within | None) -> DataFrame:
        """The rows of a source or an upstream view as of this epoch, with weights; those within some values at least."""
        if name in self.catalog.views:
            return self._view_rows(name, within)
        place = None if within is None else self._sought_in(name, within)
        if within is not None and isinstance(place, SourceIndex):
            return self._indexed(name, place, within)
        own = self.files(name)
        if not own.are_rows:
            return self.source(name).all_rows(self.spark, self._pin(self.epoch, name), with_row_id=False)
        if within is not None:
            self._advise(name, own, within)
        return self._weighted(own.read(self.spark, within))

    def _advise(self, name: str, own: SnapshotFiles, within: Within) -> None:
        """Note what a lookup in a source's own files reads, if there is no index that it could have used."""
        entry = self.catalog.sources.get(name)
        if entry is not None and within.column not in entry.indexes and not self.is_backfill:
            self.advice.saw(name, own, within)

    @staticmethod
    def _weighted(rows: DataFrame) -> DataFrame:
        return rows.withColumn(WEIGHT, F.lit(1).cast("bigint"))

    def had_none(self, name: str, within: Within) -> bool:
        """Whether no row that a source had as of the last epoch is within some values, as far as the log tells."""
        since = self.since
        if since is None or name in self.catalog.views:
            return False
        old = self.files(name).before(self._range(name, self._pin(since, name), self._pin(self.epoch, name)))
        return old is not None and not old.within(within)

    def row_count(self, name: str) -> int | None:
        """How many rows a source has as of this epoch, those included that are only marked as deleted.

        ``None`` where the log does not tell, and for views.
        """
        if name in self.catalog.views:
            return None
        found = self.files(name)
        return row_count(found.files) if found.are_rows else None

    def rows_read(self, name: str, within: Within | None) -> float | None:
        """About how many rows of a source are read to find those within some values; ``None`` where the log does not tell."""
        count = self.row_count(name)
        return count if count is None or within is None else self._sought_in(name, within).rows_read(within)

    @property
    def used_columns(self) -> dict[str, set[str]]:
        """At least the columns that the view reads of each relation."""
        if not self._used:
            assert self.view.plan is not None
            self._used = used_columns(self.view.plan)
        return self._used

    def _sought_in(self, name: str, within: Within) -> SnapshotFiles | SourceIndex:
        """The files of a source, or an index of it in which far fewer rows are read."""
        entry, own = self.catalog.sources.get(name), self.files(name)
        if entry is None or within.column not in entry.indexes:
            return own
        index = self.reads.index(self.warehouse, entry, within.column)
        contents = index.contents
        if contents is None or not contents.serves(self._pin(self.epoch, name), self.used_columns[name]):
            return own
        if own.are_rows and _FEWER * index.rows_read(within) > own.rows_read(within):
            return own
        since = self.changed_since(name, contents.pin)
        return index if since is not None and since.changed_bytes <= SMALL_CHANGE_BYTES else own

    def _indexed(self, name: str, index: SourceIndex, within: Within) -> DataFrame:
        """The rows of a source from an index, with what has changed since it was written."""
        contents, until = index.contents, self._pin(self.epoch, name)
        assert contents is not None
        rows, found = index.read(self.spark, within), self._range(name, contents.pin, until)
        changes = self.source(name).changes(self.spark, contents.pin, until, found, with_row_id=False)
        if changes is not None:
            rows = rows.union(changes.select(*columns_of(contents.columns), WEIGHT))
        others = [f for f in struct_of(until.schema_json).fields if f.name not in contents.columns]
        # Pruned, since the view reads none of them; if it did, that would be an error and not a wrong row.
        unread = F.raise_error(F.lit(f"source {name} was read by its index by {index.column}, which lacks a column"))
        return rows.select("*", *(unread.cast(f.dataType).alias(f.name) for f in others))

    def sample(self, name: str) -> tuple[DataFrame, int] | None:
        """The rows of some file of a source, with weights, and how many they are; ``None`` where the log does not tell."""
        if not self.row_count(name):
            return None
        some = self.files(name).sample(_SAMPLE_ROWS)
        return self._weighted(some.read(self.spark, None)), row_count(some.files) or 0

    def files(self, name: str) -> SnapshotFiles:
        """The files of a source as of this epoch, listed once in a run."""
        version = self._pin(self.epoch, name).version
        place = (name, version)
        if place not in self.reads.files:
            self.reads.files[place] = snapshot_files(self.source(name), version)
        return self.reads.files[place]

    def in_place_bytes(self) -> int:
        """Bytes of the sources that joins look rows up in."""
        assert self.view.plan is not None
        sides = (
            side
            for join in walk(self.view.plan)
            if isinstance(join, Join)
            for side, there in ((join.left, join.left_in_place), (join.right, join.right_in_place))
            if there
        )
        names = {scan.relation for side in sides for scan in walk(side) if isinstance(scan, Scan)}
        return sum(self.files(name).total_bytes for name in names if name not in self.catalog.views)

    def changed_since(self, name: str, since: Pin) -> ChangeRange | None:
        """What has changed in a source since some version; ``None`` where that cannot be read, or not any more."""
        try:
            return self._range(name, since, self._pin(self.epoch, name))
        except SourceError:
            return None

    def _range(self, name: str, since: Pin, until: Pin) -> ChangeRange:
        return self.reads.range(self.source(name), since, until, append_only=lambda: self._reads_append_only(name))

    def _view_changes(self, name: str) -> DataFrame | None:
        upstream = self.catalog.views[name]
        versions = self.versions.get(name)
        if versions is None or versions.state_version is None:
            return None
        since = self.view.last_epoch
        if since is not None:
            before = self.catalog.epochs[since].versions.get(name)
            if before is not None and before.state_version == versions.state_version:
                return None
        runs = self._view_runs(upstream, versions.state_version, None)
        if since is not None:
            runs = runs.where(F.col(EPOCH) > since)
        return runs.select(*view_columns(upstream), F.col(STATE_WEIGHT).alias(WEIGHT))

    def _view_rows(self, name: str, within: Within | None) -> DataFrame:
        upstream, versions = self.catalog.views[name], self.versions.get(name)
        if versions is None or versions.state_version is None:
            raise EpochError(f"view {name} has no rows at epoch {self.epoch.epoch}")
        if within is not None:
            within = replace(within, column=state_column(upstream, within.column))
        runs = self._view_runs(upstream, versions.state_version, within)
        return runs.select(*view_columns(upstream), F.col(STATE_WEIGHT).alias(WEIGHT))

    def _view_runs(self, upstream: ViewEntry, state_version: int, within: Within | None) -> DataFrame:
        """The unmerged rows of an upstream view up to this epoch."""
        store = StateStore(self.spark, StateFiles(self.warehouse.state_path(upstream)), upstream.tables)
        own = upstream.tables[-1]
        table = store.storage_table(own.table_id, version=state_version, epoch=self.epoch.epoch)
        return table.runs([c.name for c in own.schema.columns], within)

    def source(self, name: str) -> DeltaSource:
        """The reader of a source, one for all views of a run."""
        entry = self.catalog.sources.get(name)
        if entry is None:
            raise SourceError(f"view {self.view.name} reads {name}, which is neither a source nor a view any more")
        return self.reads.source(self.warehouse, entry)

    def _pin(self, epoch: EpochEntry, name: str) -> Pin:
        pin = epoch.pins.get(name)
        if pin is None:
            raise EpochError(f"epoch {epoch.epoch} has no pinned version of source {name}; rebuild with --full-refresh")
        return pin

    def _reads_append_only(self, name: str) -> bool:
        assert self.view.plan is not None
        return any(isinstance(n, Scan) and n.relation == name and n.append_only for n in walk(self.view.plan))

    def snapshot(self, name: str, session: SparkSession) -> DataFrame:
        """A relation as of this epoch, with the columns that a query sees."""
        if name in self.catalog.views:
            upstream = self.catalog.views[name]
            versions = self.versions.get(name)
            assert upstream.plan is not None
            reader = session.read.format("delta")
            if versions is None or versions.view_version is None:
                raise EpochError(f"view {name} has no rows published at epoch {self.epoch.epoch}")
            rows = reader.option("versionAsOf", versions.view_version).load(self.warehouse.view_path(name))
            return rows.select(*(quoted(o.name) for o in upstream.plan.output))
        return self.source(name).snapshot(session, self._pin(self.epoch, name))
