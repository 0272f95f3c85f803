"""A source that a view reads in an epoch, by its files or an index."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.catalog.entries import EpochEntry, SourceEntry
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Scan, walk
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.jobs.sources.pins import ChangeRange, Pin
from relstate_dagster.jobs.sources.protocol import Source, insertions
from relstate_dagster.jobs.sources.schema_changes import added_columns, changed_columns
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.jobs.sources.source_index import SourceIndex
from relstate_dagster.jobs.view_epoch.input import Input
from relstate_dagster.jobs.view_epoch.shared_reads import ReadKey, made_columns, scanned_columns
from relstate_dagster.jobs.view_epoch.steps import Read
from relstate_dagster.state_lib.constants import COMMIT_VERSION, MADE_BY_SOURCES, ROW_ID, WEIGHT
from relstate_dagster.state_lib.errors import EpochError, SourceError
from relstate_dagster.state_lib.lake.statistics import row_count
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.tuning import tuning


class SourceInput(Input):
    """A source as of an epoch."""

    @cached_property
    def entry(self) -> SourceEntry:
        """The source in the catalog.

        Raises
        ------
        SourceError : there is no such source.
        """
        entry = self.inputs.catalog.sources.get(self.name)
        if entry is None:
            raise SourceError(f"view {self.inputs.view.name} reads {self.name}, which is neither a source nor a view any more")
        return entry

    @property
    def source(self) -> Source:
        """The reader of the source, one for all views of a run."""
        return self.inputs.reads.source(self.inputs.warehouse, self.entry)

    @property
    def pin(self) -> Pin:
        """The version that this epoch reads."""
        return pin_of(self.inputs.epoch, self.name)

    @property
    def since(self) -> Pin | None:
        """The version that the view has read; ``None`` before the first epoch."""
        return None if self.inputs.since is None else pin_of(self.inputs.since, self.name)

    def range(self, since: Pin) -> ChangeRange:
        """Changes between some version and this epoch's.

        Raises
        ------
        SourceError : that cannot be read, or not any more, or a column that the view reads has become another one.
        """
        until = self.pin
        found = self.inputs.reads.range(self.source, since, until, append_only=lambda: any(s.append_only for s in self._scans))
        changed = changed_columns(since.schema_json, until.schema_json, self._columns_read)
        if changed:
            raise SourceError(
                f"source {self.name} ({self.source.path}) changed its schema between versions {since.version} and "
                f"{until.version}, and view {self.inputs.view.name} reads it: {', '.join(changed)}; rebuild the view with "
                "--full-refresh"
            )
        return found

    def changed_since(self, since: Pin) -> ChangeRange | None:
        """As :meth:`range`; ``None`` where that cannot be read."""
        try:
            return self.range(since)
        except SourceError:
            return None

    def has_moved(self) -> bool:
        """As of :class:`Input`, by the pins."""
        return self.since is None or not self.since.is_same(self.pin)

    def changes(self, spark: SparkSession) -> DataFrame | None:
        """As of :class:`Input`; the views of a run share what they read."""
        until, since, generated = self.pin, self.since, self.generated_columns
        if since is None:
            return self.as_planned(self.source.all_rows(spark, until, generated), keeps_unread=False)
        if since.is_same(until):
            return None
        found = self.range(since)
        shared, key = self.inputs.reads.shared, ReadKey(self.name, since.identity, until.identity, generated)
        scanned = scanned_columns(self.inputs.view)[self.name]
        changes = shared.changes(
            spark,
            key,
            found.changed_bytes,
            scanned,
            lambda: self.source.changes(spark, since, until, found, generated, shared.columns_of(key, scanned)),
        )
        return None if changes is None else self.as_planned(changes, keeps_unread=False)

    def rows(self, spark: SparkSession, lookup_keys: LookupKeys | None) -> DataFrame:
        """As of :class:`Input`."""
        place = None if lookup_keys is None else self._lookup_place(lookup_keys)
        if lookup_keys is not None and isinstance(place, SourceIndex):
            return self.as_planned(self._indexed(spark, place, lookup_keys))
        generated = self.generated_columns - {ROW_ID}
        if generated or not self.files.are_rows:
            return self.as_planned(self.source.all_rows(spark, self.pin, generated))
        # Lookups that an index could have served are noted.
        if lookup_keys is not None and lookup_keys.column not in self.entry.indexes and self.inputs.view.last_epoch is not None:
            self.inputs.advice.saw(self.name, self.entry.indexes, self.files, lookup_keys)
        return self.as_planned(insertions(self.files.read(spark, lookup_keys)))

    def snapshot(self, session: SparkSession) -> DataFrame:
        """As of :class:`Input`, with the columns of the plan, since ``*`` means those."""
        if self.entry.is_changelog:
            rows = self.as_planned(self.source.all_rows(session, self.pin, self.generated_columns).drop(WEIGHT))
        else:
            rows = self.source.snapshot(session, self.pin)
        there, planned = rows.columns, self._planned
        wanted = [column for column in there if planned is None or column in planned]
        return rows if wanted == there else rows.select(*map(quoted, wanted))

    def read_of_all(self) -> Read:
        """As of :class:`Input`."""
        first = self.pin.first_files
        which = "all rows" if first is None else f"the first {first} file(s)"
        return self._read(which, *self.source.totals(self.pin))

    def read_of_change(self, _moved: tuple[int, int] | None = None) -> Read:
        """As of :class:`Input`."""
        assert self.since is not None
        changed = self.range(self.since)
        rows = (changed.rows_inserted, changed.rows_deleted)
        known = rows if changed.net is None or not any(rows) else None
        way = self.source.read_strategy(changed, self.pin, self.generated_columns)
        if self.inputs.view.strategy == "full":
            way = f"{way}; the query reads all rows"
        return Read(self.name, way, changed.changed_bytes, known, sum(rows), self.width())

    def types(self) -> Mapping[str, T.DataType]:
        """As of :class:`Input`."""
        return {f.name: f.dataType for f in struct_of(self.pin.schema_json).fields}

    def provably_absent_before(self, lookup_keys: LookupKeys) -> bool:
        """As of :class:`Input`."""
        if self.since is None:
            return False
        old = self.files.before(self.range(self.since))
        return old is not None and not old.files_with(lookup_keys)

    def row_count(self) -> int | None:
        """As of :class:`Input`."""
        return row_count(self.files.files) if self.files.are_rows else None

    def rows_read(self, lookup_keys: LookupKeys | None) -> float | None:
        """As of :class:`Input`."""
        count = self.row_count()
        return count if count is None or lookup_keys is None else self._lookup_place(lookup_keys).rows_read(lookup_keys)

    def sample(self, spark: SparkSession) -> tuple[DataFrame, int] | None:
        """As of :class:`Input`: the rows of one file."""
        if not self.row_count():
            return None
        some = self.files.sample(tuning().sample_rows)
        return self.as_planned(insertions(some.read(spark, None))), row_count(some.files) or 0

    @property
    def files(self) -> SnapshotFiles:
        """The files as of this epoch, listed once in a run."""
        return self.source.files(self.pin)

    @property
    def generated_columns(self) -> frozenset[str]:
        """The columns that the view reads and that the source makes."""
        if self._planned is None and self.entry.is_changelog:
            return frozenset({COMMIT_VERSION})
        return made_columns(self.inputs.view, self.name)

    def unread_new_columns(self) -> tuple[str, ...]:
        """New columns, where the view reads all others, as ``SELECT *`` does."""
        reads_all = (self._planned or {}).keys() - MADE_BY_SOURCES == (self._columns_read or set()) - MADE_BY_SOURCES
        return added_columns(self.since.schema_json, self.pin.schema_json) if reads_all and self.since is not None else ()

    def as_planned(self, rows: DataFrame, *, keeps_unread: bool = True) -> DataFrame:
        """Rows with all columns that the view was planned with, also dropped ones.

        Columns that it never reads are NULL where they are not kept: the driver holds less then.
        """
        planned, read = self._planned or {}, self._columns_read
        unread = set() if read is None else planned.keys() - (read - MADE_BY_SOURCES) - self.generated_columns - {ROW_ID}
        dropped, nulled = planned.keys() - {ROW_ID, *rows.columns}, set() if keeps_unread else unread
        if not dropped and not nulled:
            return rows
        null = F.lit(None)
        # If the view did read a dropped column, that would be an error and not a wrong row.
        no_more = F.raise_error(F.lit(f"source {self.name} has no column {', '.join(sorted(dropped))} any more"))
        kept = [null.cast(planned[c]).alias(c) if c in nulled else F.col(quoted(c)) for c in rows.columns]
        added = [(null if c in unread else no_more).cast(planned[c]).alias(c) for c in sorted(dropped)]
        return rows.select(*kept, *added)

    @cached_property
    def _scans(self) -> tuple[Scan, ...]:
        """The scans of the source in the view's plan."""
        assert self.inputs.view.plan is not None
        return tuple(n for n in walk(self.inputs.view.plan) if isinstance(n, Scan) and n.relation == self.name)

    @property
    def _planned(self) -> dict[str, str] | None:
        """Columns that the view was planned with, and their types.

        ``None`` if the plan does not have them.
        """
        return {f.name: f.data_type for scan in self._scans for f in scan.columns} or None

    @property
    def _columns_read(self) -> set[str] | None:
        """At least the columns that the view reads, and the key.

        ``None`` if the plan does not have them.
        """
        used = self.inputs.used_columns.get(self.name)
        return None if used is None else used | set(self.entry.primary_key)

    def _lookup_place(self, lookup_keys: LookupKeys) -> SnapshotFiles | SourceIndex:
        """Files of the source, or an index that reads far fewer rows."""
        own, reads = self.files, self.inputs.reads
        if lookup_keys.column not in self.entry.indexes:
            return own
        index = reads.index(self.inputs.warehouse, self.entry, lookup_keys.column)
        contents = index.contents
        if contents is None or not contents.serves(self.pin, self.inputs.used_columns[self.name]):
            return own
        if own.are_rows and tuning().index_fewer * index.rows_read(lookup_keys) > own.rows_read(lookup_keys):
            return own
        since = self.changed_since(contents.pin)
        return index if since is not None and since.changed_bytes <= tuning().index_change_bytes else own

    def _indexed(self, spark: SparkSession, index: SourceIndex, lookup_keys: LookupKeys) -> DataFrame:
        """Rows from an index, with the changes since it was written."""
        contents, until = index.contents, self.pin
        assert contents is not None
        rows, found = index.read(spark, lookup_keys), self.range(contents.pin)
        changes = self.source.changes(spark, contents.pin, until, found)
        if changes is not None:
            rows = rows.union(changes.select(*columns_of(contents.columns), WEIGHT))
        others = [f for f in struct_of(until.schema_json).fields if f.name not in contents.columns]
        # Pruned, since the view reads none of them; if it did, that would be an error and not a wrong row.
        unread = F.raise_error(F.lit(f"source {self.name} was read by its index by {index.column}, which lacks a column"))
        return rows.select("*", *(unread.cast(f.dataType).alias(f.name) for f in others))


def pin_of(epoch: EpochEntry, name: str) -> Pin:
    """The version of a source that an epoch has pinned.

    Raises
    ------
    EpochError : it has pinned none.
    """
    pin = epoch.pins.get(name)
    if pin is None:
        raise EpochError(f"epoch {epoch.epoch} has no pinned version of source {name}; rebuild with --full-refresh")
    return pin
