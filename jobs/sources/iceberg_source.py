"""An Iceberg table as a source: pinned snapshots, and what differs between their files.

PyIceberg reads the metadata, without a JVM; Spark reads the files as Parquet, without Iceberg's runtime. A row that a table
gained or lost is in a file that only one of two snapshots has. Or only one of them marks its place as deleted. Files that
were rewritten have unchanged rows as well, which cancel out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.sources.change_files import read_changes
from relstate_dagster.jobs.sources.commit_order import AppendedFile
from relstate_dagster.jobs.sources.file_layout import FileLayout, struct_of
from relstate_dagster.jobs.sources.iceberg_table import IcebergTable, Snapshot, SnapshotContent
from relstate_dagster.jobs.sources.net_files import FileDifference, FilesAt, must_be_netted, summed, union_of_common
from relstate_dagster.jobs.sources.pins import ChangeRange, NetChange, Pin, Rest
from relstate_dagster.jobs.sources.protocol import Source, insertions
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.log import TableFacts
from relstate_dagster.state_lib.lake.statistics import byte_count, row_count

_REWRITTEN: Final = "Iceberg records no changed rows"
_REBUILD: Final = "rebuild the views that read it with --full-refresh"


class IcebergSource(Source):
    """An Iceberg table.

    Parameters
    ----------
    name : identifier that views use.
    path : as of :class:`.jobs.sources.iceberg_table.IcebergTable`.
    key : primary key columns; empty for none.
    """

    def __init__(self, name: str, path: str, key: Sequence[str] = ()) -> None:
        super().__init__(name, path, key)
        self._where = f"source {name} ({path})"
        self._table = IcebergTable(path, self._where)

    def facts(self, version: int | None = None) -> TableFacts:
        """Columns, identity and version of a snapshot."""
        snapshot = self._table.newest() if version is None else self._table.at(version)
        return TableFacts(snapshot.version, self._table.uuid, snapshot.schema_json, {}, ())

    def pin(self, previous: Pin | None, until: int | None = None) -> Pin:
        """Pin the current snapshot, or the one of a version."""
        newest = self._table.newest()
        pin = self._pin(newest if until is None or until >= newest.version else self._table.at(until))
        return previous if previous is not None and pin == replace(previous, first_files=None) else pin

    def check_range(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """The files in which two snapshots differ.

        Raises
        ------
        SourceError : the table is another one, a snapshot has expired, or rows changed that are declared not to.
        """
        if since.first_files is not None:
            return self._check_rest(since, until, append_only=append_only)
        if since.is_same(until):
            return ChangeRange(0, 0, 0, (), True, False, ())
        if since.table_uuid != until.table_uuid:
            raise SourceError(f"{self._where} is another table than at version {since.version}: it was replaced; {_REBUILD}")
        difference = FileDifference.between(self._files_at(since), self._files_at(until), None)
        files = difference.change_files(self._layout(until))
        assert files is not None, "no folder names a value, and all deleted rows are known"
        only_appends = not (difference.removed or difference.marked)
        if append_only and not only_appends:
            raise SourceError(
                f"{self._where} is declared append-only, but rows were updated or deleted since version {since.version}; drop "
                f"the declaration and {_REBUILD}"
            )
        added = tuple(AppendedFile(path, difference.after.files[path].rows) for path in difference.added)
        net = NetChange(_REWRITTEN, difference.names, len(difference.after.files))
        return ChangeRange(
            *difference.rows(),
            sum(file.bytes for file in files),
            added if only_appends else (),
            only_appends,
            has_change_feed=False,
            files=files,
            net=None if only_appends else net,
        )

    def changes(
        self,
        spark: SparkSession,
        since: Pin,
        until: Pin,
        found: ChangeRange,
        generated_columns: Collection[str] = (),
        columns: Collection[str] | None = None,
    ) -> DataFrame | None:
        """The change set between two pins; ``None`` if there is none."""
        if found.rest is not None:
            rest = insertions(self.files(since.whole).some(found.rest.first, found.rest.until).read(spark, None))
            later = self.changes(spark, since.whole, until.whole, found.rest.later, generated_columns, columns)
            return rest if later is None else union_of_common(rest, later)
        if not found.files:
            return None
        rows = read_changes(spark, self._layout(until), found.files)
        return summed(rows, columns) if must_be_netted(found.files) else rows

    def all_rows(self, spark: SparkSession, pin: Pin, generated_columns: Collection[str] = ()) -> DataFrame:
        """Every row as of a pin, as an insertion."""
        if generated_columns:
            raise SourceError(f"{self._where} is an Iceberg table, which gives its rows no {', '.join(generated_columns)}")
        return insertions(self.files(pin).read(spark, None))

    def read_strategy(self, found: ChangeRange, until: Pin, generated_columns: Collection[str] = ()) -> str:
        """Description of :meth:`changes`' way to read."""
        if found.rest is not None:
            return f"{len(found.appended) - len(found.rest.later.appended)} file(s) that were not read before"
        if not found.files:
            return "nothing changed"
        if found.net is None:
            return f"{len(found.files)} added file(s)"
        return f"{len(found.files)} removed or added file(s) out of {found.net.total_files}, netted: {found.net.reason}"

    def check_version(self, version: int) -> None:
        """Raise unless a snapshot of that version, or before it, is there."""
        super().check_version(version)
        self._table.at(version)

    def totals(self, pin: Pin | None = None) -> tuple[int, int | None]:
        """Bytes and rows of the files, with rows that are deleted in them."""
        found = self.files(self._pin(self._table.newest()) if pin is None else pin).files
        return byte_count(found), row_count(found)

    def files(self, pin: Pin) -> SnapshotFiles:
        """The files of a snapshot."""
        content = self._content(pin)
        found = SnapshotFiles(self._layout(pin), tuple(content.files.values()), content.deleted)
        return found if pin.first_files is None else found.some(0, pin.first_files)

    def _pin(self, snapshot: Snapshot) -> Pin:
        fingerprint = "" if snapshot.snapshot_id is None else str(snapshot.snapshot_id)
        return Pin(snapshot.version, self._table.uuid, snapshot.schema_json, fingerprint=fingerprint)

    def _layout(self, pin: Pin) -> FileLayout:
        return FileLayout(self.path, struct_of(pin.schema_json))

    def _files_at(self, pin: Pin) -> FilesAt:
        content = self._content(pin)
        return FilesAt(content.files, content.deleted)

    def _content(self, pin: Pin) -> SnapshotContent:
        snapshot_id = int(pin.fingerprint) if pin.fingerprint else None
        if not self._table.has(snapshot_id):
            raise SourceError(
                f"{self._where}: the snapshot of version {pin.version} has expired; {_REBUILD}, and keep snapshots longer than "
                "the time between two runs (history.expire.max-snapshot-age-ms)"
            )
        return self._table.content(snapshot_id)

    def _check_rest(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """As :meth:`check_range`, from some files of a pin on."""
        first, last = since.first_files or 0, until.first_files
        later = self.check_range(since.whole, until.whole, append_only=append_only)
        files = self.files(since.whole).files[first:last]
        return replace(
            later,
            rows_inserted=later.rows_inserted + sum(file.rows for file in files),
            changed_bytes=later.changed_bytes + byte_count(files),
            appended=(*(AppendedFile(file.path, file.rows) for file in files), *later.appended),
            files=None,
            rest=Rest(first, last, later),
        )
