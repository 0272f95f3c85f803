"""A Delta table as a source: pinned versions, change feed, and appended files.

A keyless append-only source gets a Serial ``_row_id``, a number of its rows in the order of commits, files and positions.
It is worked out from the log, so reading the same range again gives the same ids.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.sources.change_files import CHANGE_TYPE, INSERTIONS, change_files, read_changes
from relstate_dagster.jobs.sources.commit_order import AppendedFile, CommitOrder
from relstate_dagster.jobs.sources.commit_range import CommitRange
from relstate_dagster.jobs.sources.deleted_rows import DeletedRows, deleted_rows
from relstate_dagster.jobs.sources.file_layout import FileLayout, file_name, physical_name, struct_of
from relstate_dagster.jobs.sources.net_files import (
    FileDifference,
    FilesAt,
    must_be_netted,
    reads_older_files,
    without_cancelled,
)
from relstate_dagster.jobs.sources.pins import ChangeRange, NetChange, Pin, Rest
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.jobs.sources.row_counts import RowCounts
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.state_lib.char_columns import char_type
from relstate_dagster.state_lib.constants import COMMIT_VERSION, ROW_ID, WEIGHT
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import Address, full_path, is_absolute
from relstate_dagster.state_lib.lake.log import Action, DeltaLog, TableFacts, files_of, table_facts
from relstate_dagster.state_lib.lake.parquet import footer_rows
from relstate_dagster.state_lib.lake.statistics import byte_count, data_files, row_count
from relstate_dagster.state_lib.lake.table import DeltaError, OpenedTable
from relstate_dagster.state_lib.row_sums import columns_of_schema, consolidate
from relstate_dagster.state_lib.serial import next_base_ms, row_id_of_ordinal
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.tuning import tuning

_REBUILD: Final = "rebuild the views that read it with --full-refresh"
_REBUILD_LONGER: Final = (
    "Rebuild the views that read it with --full-refresh, and keep files longer than the time between two runs "
    "(delta.deletedFileRetentionDuration)"
)
_NO_FEED: Final = "it has no change data feed"
#: File names that a filter lists at most; all files are read and netted where more differ.
_MOST_NAMES: Final = 2_000
_CDF_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


class DeltaSource(Source):
    """A Delta table.

    Parameters
    ----------
    name : identifier that views use.
    path : where the Delta table lies.
    key : primary key columns; empty for none.
    """

    def __init__(self, name: str, path: str, key: Sequence[str] = ()) -> None:
        super().__init__(name, Address.parse(path).spark, key)
        self.log = DeltaLog(path)
        self.table = OpenedTable(path)
        self._order = CommitOrder(name, self.log)
        self._deleted: dict[int, DeletedRows | None] = {}
        self._files: dict[int, SnapshotFiles] = {}
        self._facts: dict[int, TableFacts] = {}
        self._checked: set[tuple[int, str]] = set()

    def facts(self, version: int | None = None) -> TableFacts:
        """Facts of the table, read once for each version."""
        if version is None:
            return table_facts(self.table, None)
        if version not in self._facts:
            self._facts[version] = table_facts(self.table, version)
        return self._facts[version]

    def check_version(self, version: int) -> None:
        """Look whether the table can be read at a version.

        Raises
        ------
        SourceError : it has no such version, or not any more.
        """
        where, newest = f"source {self.name} ({self.path})", self.facts().version
        if version > newest:
            raise SourceError(f"{where} has no version {version}: the newest is {newest}")
        try:
            self.facts(version)
        except SourceError as error:
            raise SourceError(f"{where} cannot be read at version {version} any more: its log was cleaned up") from error

    def pin(self, previous: Pin | None, until: int | None = None) -> Pin:
        """Pin the newest version, or one that is to be read at most.

        The same pin again where nothing was committed since, without opening the table.
        """
        is_early = previous is not None and (until is None or previous.version <= until)
        if previous is not None and is_early and self._is_there(previous):
            is_last = previous.version == until or not self.log.has(previous.version + 1)
            if is_last:
                return previous
        facts = self.facts()
        if until is not None and until < facts.version:
            facts = self.facts(until)
        base = 0
        if not self.key:
            # A keyless source only appends, or gets no ids: an epoch before had at most the rows that are there now.
            last = None if previous is None else previous.serial_base_ms
            base = next_base_ms(time.time_ns() // 1_000_000, last, self._rows_at(facts.version))
        fingerprint = self.log.fingerprint(facts.version) or ""
        self._checked.add((facts.version, fingerprint))
        return Pin(facts.version, facts.table_uuid, facts.schema_json, base, fingerprint)

    def _is_there(self, pin: Pin) -> bool:
        """Whether the log has the pinned commit, and no other of this version."""
        found = self.log.fingerprint(pin.version)
        if found is None:
            return False
        if pin.fingerprint and found == pin.fingerprint:
            self._checked.add((pin.version, found))
        return found == pin.fingerprint if pin.fingerprint else self.facts().table_uuid == pin.table_uuid

    def _check_is_there(self, pin: Pin) -> None:
        """Raise if another commit has the version of a pin.

        A commit that was cleaned up cannot be compared.
        """
        if not pin.fingerprint or (pin.version, pin.fingerprint) in self._checked:
            return
        if self.log.fingerprint(pin.version) not in (None, pin.fingerprint):
            raise SourceError(
                f"source {self.name} ({self.path}): version {pin.version} is another commit than it was: the table was "
                f"replaced, or put back from a copy and then changed; {_REBUILD}"
            )
        self._checked.add((pin.version, pin.fingerprint))

    def _rows_at(self, version: int) -> int:
        return sum(file.rows for file in self._counted_files(version))

    def _counted_files(self, version: int) -> list[AppendedFile]:
        """Data files of a version with their row counts, in the order of their paths."""
        return self._counted([AppendedFile(file.path, file.rows) for file in data_files(self.table.at(version))])

    def _counted(self, files: Sequence[AppendedFile]) -> list[AppendedFile]:
        """Files with their row counts, from their footers where the log does not have them."""
        read = iter(footer_rows([full_path(self.path, file.path) for file in files if file.rows < 0]))
        return [file._replace(rows=next(read)) if file.rows < 0 else file for file in files]

    def check_range(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """Check that the changes between two pins can be read, and measure them.

        Raises
        ------
        SourceError : the table was replaced or went back, a commit or a file of the range is gone, or rows changed that no
            change feed recorded.
        """
        if since.first_files is not None:
            return self._check_rest(since, until, append_only=append_only)
        if since.is_same(until):
            return ChangeRange(0, 0, 0, (), True, False, ())
        where = f"source {self.name} ({self.path})"
        if since.table_uuid != until.table_uuid or until.version < since.version:
            raise SourceError(f"{where} is another table than at version {since.version}: it was replaced; {_REBUILD}")
        for pin in (since, until):
            self._check_is_there(pin)
        facts = self.facts(until.version)
        commits = self._commits(since, until, facts, append_only=append_only)
        reason = None if append_only else self._why_net(commits, since, facts)
        if reason is not None:
            return self._net_range(commits, since, until, facts, reason)
        self._check_readable(commits, since, until)
        return ChangeRange(
            commits.rows_inserted,
            commits.rows_deleted,
            commits.changed_bytes,
            tuple(commits.appended),
            commits.only_appends,
            facts.has_change_feed,
            None if commits.changed is None else tuple(commits.changed),
            partitions=commits.partitions if commits.changed is None and self._has_values(facts) else None,
        )

    def _commits(self, since: Pin, until: Pin, facts: TableFacts, *, append_only: bool) -> CommitRange:
        """Changes of the commits between two pins, from the log."""
        counts = RowCounts(self.table.path, lambda: {f.path: f.rows for f in data_files(self.table.at(since.version))})
        layout = FileLayout.of(self.table.path, facts)
        commits = CommitRange(changed=None if layout is None else [])
        marking_commits = 0
        for version in range(since.version + 1, until.version + 1):
            try:
                actions = self.log.commit(version)
            except SourceError as error:
                if self.log.has(version):
                    raise
                commits.missing = error
                return commits
            recorded, adds, removes = files_of(actions)
            commits.note(actions)
            if removes or recorded:
                commits.only_appends = False
                if append_only:
                    self._refuse_updates(version)
            read = recorded or [*adds, *removes]
            commits.gone += self._fill_in_sizes(read)
            if commits.gone:
                continue
            plus, minus = counts.changed(actions)
            commits.rows_inserted, commits.rows_deleted = commits.rows_inserted + plus, commits.rows_deleted + minus
            vectors = partial(self._vectors, version) if marking_commits < tuning().marking_commits else lambda: None
            of_commit = None if layout is None else change_files(layout, actions, vectors)
            if of_commit is None:
                commits.changed_bytes += sum(int(f.get("size") or 0) for f in read)
            else:
                commits.changed_bytes += sum(f.bytes for f in of_commit)
                marking_commits += any(f.positions is not None for f in of_commit)
            commits.changed = None if commits.changed is None or of_commit is None else [*commits.changed, *of_commit]
            commits.appended += [AppendedFile.of(add, version) for add in adds]
            commits.partitions |= {add["path"]: add.get("partitionValues") or {} for add in adds}
        return commits

    def _check_readable(self, commits: CommitRange, since: Pin, until: Pin) -> None:
        """Raise if a commit of a range is gone, or a file that it names."""
        if commits.missing is not None:
            raise commits.missing
        if commits.gone:
            raise SourceError(
                f"source {self.name} ({self.path}): {len(commits.gone)} files with the changes between versions "
                f"{since.version} and {until.version} are gone (vacuumed); the first is {commits.gone[0]}. {_REBUILD_LONGER}"
            )

    def _why_net(self, commits: CommitRange, since: Pin, facts: TableFacts) -> str | None:
        """Reason not to read changes as they were recorded; ``None`` without one."""
        if commits.missing is not None:
            return "commits are no longer in its log"
        if commits.gone:
            return "files with its recorded changes are gone"
        if commits.changed is not None:  # read from files that commits name, whether recorded or not
            return None if facts.has_change_feed or commits.only_appends else _NO_FEED
        if not facts.has_change_feed:
            return None if commits.only_appends and self._has_values(facts) else _NO_FEED
        if commits.alters and (commits.switches_feed_off or not self._had_feed(since)):
            return "its change data feed was off for a time"
        return "Delta does not read its change data feed over a change of its columns" if commits.alters else None

    def _has_values(self, facts: TableFacts) -> bool:
        """Whether files and the log's partition values hold all of a row."""
        return facts.column_mapping != "id" and not any(map(char_type, struct_of(facts.schema_json).fields))

    def _had_feed(self, pin: Pin) -> bool:
        """Whether the feed was on at a version; true if the log lacks it."""
        try:
            return self.facts(pin.version).has_change_feed
        except SourceError:
            return True

    def _net_range(self, commits: CommitRange, since: Pin, until: Pin, facts: TableFacts, reason: str) -> ChangeRange:
        """The range as the net difference of files.

        Those of both versions, or, where these are fewer bytes, those of the commits. So files that OPTIMIZE has rewritten
        are mostly not read.

        Raises
        ------
        SourceError : files of the earlier version are gone.
        """
        by_commits = by_versions = difference = None
        layout = self._layout_of_both(commits, since, until)
        if layout is not None and commits.changed is not None and not commits.gone and commits.missing is None:
            by_commits = without_cancelled(commits.changed)
        try:
            difference = self._difference(commits, since, until, reason)
            by_versions = None if layout is None else difference.change_files(layout)
        except SourceError:
            if by_commits is None:
                raise
        found = [files for files in (by_versions, by_commits) if files is not None]
        files = min(found, key=lambda some: sum(file.bytes for file in some), default=None)
        if files == ():
            rows = (0, 0)
        elif difference is None or (files is not None and files is by_commits):
            rows = (commits.rows_inserted, commits.rows_deleted)
        else:
            rows = difference.rows()
        total_bytes = 0 if difference is None or not difference.names else difference.total_bytes
        return ChangeRange(
            *rows,
            total_bytes if files is None else sum(file.bytes for file in files),
            (),
            False,
            facts.has_change_feed,
            files,
            net=NetChange(
                reason,
                frozenset() if difference is None else difference.names,
                len(data_files(self.table.at(until.version)) if difference is None else difference.after.files),
                self._advice(commits, facts),
            ),
        )

    def _layout_of_both(self, commits: CommitRange, since: Pin, until: Pin) -> FileLayout | None:
        """Layout of the files of both versions; ``None`` where only Delta can read them."""
        layout = self.layout(until.version)
        if layout is None or (not commits.alters and commits.missing is None):
            return layout
        try:
            return layout if reads_older_files(layout, self.facts(since.version)) else None
        except SourceError:
            return None

    def _difference(self, commits: CommitRange, since: Pin, until: Pin, reason: str) -> FileDifference:
        """The files in which two pinned versions differ.

        Raises
        ------
        SourceError : the earlier version cannot be opened any more, or its files are gone.
        """
        where = f"source {self.name} ({self.path}): {reason}"
        try:
            touched = None if commits.missing is not None else commits.touched
            difference = FileDifference.between(self._differing(since.version), self._differing(until.version), touched)
        except DeltaError as error:
            self._check_readable(commits, since, until)
            raise SourceError(f"{where}, and version {since.version} cannot be opened any more; {_REBUILD}") from error
        own = [path for path in (*difference.removed, *difference.marked) if not is_absolute(path)]
        gone = [path for path, size in zip(own, self.log.file_sizes(own), strict=True) if size is None]
        if gone:
            self._check_readable(commits, since, until)
            raise SourceError(
                f"{where}, and {len(gone)} files of version {since.version} are gone (vacuumed); the first is {gone[0]}. "
                f"{_REBUILD_LONGER}"
            )
        return difference

    def _differing(self, version: int) -> FilesAt:
        """The files of a version, to compare them with those of another one."""
        return FilesAt({file.path: file for file in data_files(self.table.at(version))}, self.deleted(version))

    def _advice(self, commits: CommitRange, facts: TableFacts) -> str:
        """Advice to read later changes more cheaply; empty without any."""
        if facts.has_change_feed:
            is_late = commits.missing is not None or commits.gone
            longer = "delta.logRetentionDuration and delta.deletedFileRetentionDuration"
            return f"source {self.name}: run more often, or raise {longer}, to read recorded changes" if is_late else ""
        if not commits.rows_copied:
            return ""
        return (
            f"source {self.name}: {commits.rows_copied:,} unchanged rows were read, as commits had rewritten their files; with "
            "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') only changed rows are"
        )

    def _check_rest(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """As :meth:`check_range`, from some files of a pin on."""
        first, last = since.first_files or 0, until.first_files
        self._check_is_there(since)
        later = self.check_range(since.whole, until.whole, append_only=append_only)
        files = self.files(since.whole).files[first:last]
        gone = self._fill_in_sizes([{"path": file.path, "size": file.bytes} for file in files])
        if gone:
            raise SourceError(
                f"source {self.name} ({self.path}): {len(gone)} files of version {since.version} are gone (vacuumed away), the "
                f"first is {gone[0]}; {_REBUILD}"
            )
        return replace(
            later,
            rows_inserted=later.rows_inserted + sum(max(0, file.rows) for file in files),
            changed_bytes=later.changed_bytes + sum(file.bytes for file in files),
            appended=(*(AppendedFile(file.path, file.rows) for file in files), *later.appended),
            files=None,
            rest=Rest(first, last, later),
        )

    def _fill_in_sizes(self, files: list[Action]) -> list[str]:
        """Set the sizes that a commit left out; which of the files are gone."""
        own = [f for f in files if not is_absolute(f["path"])]
        gone = []
        for file, size in zip(own, self.log.file_sizes([f["path"] for f in own]), strict=True):
            if size is None:
                gone.append(file["path"])
            elif file.get("size") is None:
                file["size"] = size
        return gone

    def _refuse_updates(self, version: int) -> None:
        """Raise for a commit that changed rows which are declared never to change."""
        raise SourceError(
            f"source {self.name} ({self.path}) is declared append-only, but version {version} updated or deleted rows; "
            f"drop the declaration and {_REBUILD}"
        )

    def _vectors(self, version: int) -> tuple[DeletedRows, DeletedRows] | None:
        """The rows deleted before and after a commit; ``None`` where that is not known."""
        try:
            before, after = (self.deleted(v) for v in (version - 1, version))
        except DeltaError:  # the version before is not in the log any more
            return None
        return None if before is None or after is None else (before, after)

    def deleted(self, version: int) -> DeletedRows | None:
        """As :func:`.jobs.sources.deleted_rows.deleted_rows` of a version, read once."""
        if version not in self._deleted:
            self._deleted[version] = deleted_rows(self.table.at(version))
        return self._deleted[version]

    def files(self, pin: Pin) -> SnapshotFiles:
        """The files of the table as of a pin, listed once."""
        if pin.version not in self._files:
            self._files[pin.version] = self.files_at(pin.version)
        found = self._files[pin.version]
        return found if pin.first_files is None else found.some(0, pin.first_files)

    def files_at(self, version: int) -> SnapshotFiles:
        """The files of the table at a version, from its log."""
        table, layout = self.table.at(version), self.layout(version)
        if layout is None:
            return SnapshotFiles(None, data_files(table))
        files = data_files(table, {stored: name for name, stored in layout.physical.items()}, layout.padded)
        deleted = self.deleted(version)
        if deleted is None or not all(layout.tells(file.path, file.partition) for file in files):
            return SnapshotFiles(None, files)
        return SnapshotFiles(layout, files, deleted)

    def layout(self, version: int) -> FileLayout | None:
        """Layout of the table's files; ``None`` if only Delta can read them."""
        return FileLayout.of(self.table.path, self.facts(version))

    def totals(self, pin: Pin | None = None) -> tuple[int, int | None]:
        """Bytes of the table's files, and rows where the log has them."""
        if pin is not None and pin.first_files is not None:
            files = self.files(pin).files
            return byte_count(files), row_count(files)
        return self.table.totals(None if pin is None else pin.version)

    def newest_version(self, least: int | None = None) -> int:
        """The newest version, from the names of log files."""
        return self.log.latest_version(least)

    def snapshot(self, spark: SparkSession, pin: Pin) -> DataFrame:
        """The table as of a pin, without weights and hidden columns.

        Raises
        ------
        SourceError : another commit has that version now.
        """
        self._check_is_there(pin)
        if pin.first_files is not None:
            return self.files(pin).read(spark, None)
        return spark.read.format("delta").option("versionAsOf", pin.version).load(self.path)

    def all_rows(self, spark: SparkSession, pin: Pin, generated_columns: Collection[str] = ()) -> DataFrame:
        """Every row as of a pin, as an insertion.

        With some of the columns that sources make, if asked for.
        """
        self._check_is_there(pin)
        if pin.first_files is not None:
            return self._some_rows(spark, pin, 0, pin.first_files, generated_columns)
        if COMMIT_VERSION in generated_columns:
            files = self._order.files(pin.version, {file.path for file in data_files(self.table.at(pin.version))})
            return self._read_files(
                spark, pin, self._counted(files) if ROW_ID in generated_columns else files, generated_columns
            )
        if ROW_ID in generated_columns:
            return self._read_files(spark, pin, self._counted_files(pin.version), generated_columns)
        return self.snapshot(spark, pin).withColumn(WEIGHT, F.lit(1).cast("bigint"))

    def _some_rows(
        self, spark: SparkSession, pin: Pin, first: int, until: int | None, generated_columns: Collection[str] = ()
    ) -> DataFrame:
        """As :meth:`all_rows`, of some files, by their places in the order of paths."""
        if ROW_ID in generated_columns:
            files = self._counted_files(pin.version)
            return self._read_files(spark, pin, files[first:until], generated_columns, numbered=files)
        return self.files(pin.whole).some(first, until).read(spark, None).withColumn(WEIGHT, F.lit(1).cast("bigint"))

    def read_strategy(self, found: ChangeRange, until: Pin, generated_columns: Collection[str] = ()) -> str:
        """Description of :meth:`changes`' way to read."""
        if found.rest is not None:
            later = self.read_strategy(found.rest.later, until, generated_columns)
            rest = f"{len(found.appended) - len(found.rest.later.appended)} file(s) that were not read before"
            return rest if found.rest.until is not None or later == "nothing changed" else f"{rest}; {later}"
        if found.net is not None:
            return _net_strategy(found, found.net)
        if not found.appended and found.only_appends:
            return "nothing changed"
        if _reads_appended(found, generated_columns):
            return f"{len(found.appended)} appended file(s)"
        if found.files is not None and self.layout(until.version) is not None:
            return f"{len(found.files)} file(s) with the changes"
        return "Delta's change feed"

    def changes(
        self,
        spark: SparkSession,
        since: Pin,
        until: Pin,
        found: ChangeRange,
        generated_columns: Collection[str] = (),
        columns: Collection[str] | None = None,
    ) -> DataFrame | None:
        """The change set between two pins; ``None`` if there is none.

        The columns of the table, if all are needed, and the weight.
        """
        if found.rest is not None:
            rest = self._some_rows(spark, since.whole, found.rest.first, found.rest.until, generated_columns)
            later = self.changes(spark, since.whole, until.whole, found.rest.later, generated_columns, columns)
            return rest if later is None else _union_of_common(rest, later)
        if found.net is not None:
            return self._net_changes(spark, since, until, found, found.net, columns)
        if since.version == until.version or (not found.appended and found.only_appends):
            return None
        layout = None if generated_columns and found.only_appends else self.layout(until.version)
        if found.files is not None and layout is not None:
            return read_changes(spark, layout, found.files) if found.files else None
        if _reads_appended(found, generated_columns):
            return self._appended(spark, until, found, generated_columns)
        feed = self._change_feed(spark, since, until)
        return feed.select(*(quoted(c) for c in feed.columns if c not in _CDF_COLUMNS), _weight_of_feed())

    def _net_changes(
        self,
        spark: SparkSession,
        since: Pin,
        until: Pin,
        found: ChangeRange,
        net: NetChange,
        columns: Collection[str] | None,
    ) -> DataFrame | None:
        """Changes of files that differ, equal rows summed."""
        layout = self.layout(until.version)
        if found.files is not None and layout is not None:
            if not found.files:
                return None
            rows = read_changes(spark, layout, found.files)
            return _summed(rows, columns) if must_be_netted(found.files) else rows
        if not net.names:
            return None
        before, after = (self._rows_of(spark, pin, net.names, weight) for pin, weight in ((since, -1), (until, 1)))
        return _summed(_union_of_common(before, after), columns)

    def _rows_of(self, spark: SparkSession, pin: Pin, names: Collection[str], weight: int) -> DataFrame:
        """The rows of a version that are in files of some names, read by Delta."""
        rows = self.snapshot(spark, pin)
        if len(names) <= _MOST_NAMES:
            rows = rows.where(F.col("_metadata.file_name").isin(*sorted(names)))
        return rows.withColumn(WEIGHT, F.lit(weight).cast("bigint"))

    def changes_by_commit(self, spark: SparkSession, since: Pin, until: Pin, found: ChangeRange) -> DataFrame | None:
        """As :meth:`changes`, with the version of each change's commit.

        Raises
        ------
        SourceError : that cannot be read.
        """
        if since.version == until.version or (not found.appended and found.only_appends):
            return None
        if found.only_appends:
            return self._appended(spark, until, found, (COMMIT_VERSION,))
        if found.net is not None:
            raise SourceError(
                f"source {self.name} ({self.path}) does not say which commit made which change between versions "
                f"{since.version} and {until.version}: {found.net.reason}"
            )
        feed = self._change_feed(spark, since, until)
        columns = [quoted(c) for c in feed.columns if c not in _CDF_COLUMNS]
        return feed.select(*columns, _weight_of_feed(), F.col("_commit_version").alias(COMMIT_VERSION))

    def _change_feed(self, spark: SparkSession, since: Pin, until: Pin) -> DataFrame:
        try:
            return (
                spark.read.format("delta")
                .option("readChangeFeed", "true")
                .option("startingVersion", since.version + 1)
                .option("endingVersion", until.version)
                .load(self.path)
            )
        except PySparkException as error:
            raise SourceError(
                f"source {self.name} ({self.path}): the changes between versions {since.version} and {until.version} "
                f"cannot be read: {str(error).splitlines()[0]}"
            ) from error

    def _appended_by_values(
        self, spark: SparkSession, pin: Pin, found: ChangeRange, partitions: Mapping[str, Mapping[str, str | None]]
    ) -> DataFrame:
        """Rows of appended files as insertions, with partition values from the log.

        Their texts are cast by the session, as Delta does. Folders may have other texts: those of times are local.
        """
        schema, facts = struct_of(pin.schema_json), self.facts(pin.version)
        is_mapped = facts.column_mapping == "name"
        stored = T.StructType([field for field in schema.fields if field.name not in facts.partition_columns])
        rows = FileLayout(self.path, stored, (), is_mapped).read(spark, [file.path for file in found.appended])
        columns = []
        for field in schema.fields:
            column = F.col(quoted(field.name))
            if field.name in facts.partition_columns:
                logged = physical_name(field) if is_mapped else field.name
                texts = [partitions[file.path].get(logged) or None for file in found.appended]
                column = _of_file(self.path, found.appended, texts, "string").cast(field.dataType).alias(field.name)
            columns.append(column)
        return rows.select(*columns, F.lit(1).cast("bigint").alias(WEIGHT))

    def _appended(self, spark: SparkSession, until: Pin, found: ChangeRange, generated_columns: Collection[str]) -> DataFrame:
        if found.partitions is not None and not generated_columns:
            return self._appended_by_values(spark, until, found, found.partitions)
        files = self._counted(found.appended) if ROW_ID in generated_columns else found.appended
        return self._read_files(spark, until, files, generated_columns)

    def _read_files(
        self,
        spark: SparkSession,
        pin: Pin,
        files: Sequence[AppendedFile],
        generated_columns: Collection[str] = (),
        numbered: Sequence[AppendedFile] | None = None,
    ) -> DataFrame:
        """Rows of data files as insertions, read as Parquet.

        Only there does a row know its place in its file.

        ``numbered`` are the files by which rows are numbered, where those are more. Files of a table that only ever appends
        hold nothing but live rows, whatever rewrites them later.
        """
        facts, schema = self.facts(pin.version), struct_of(pin.schema_json)
        mapping = facts.column_mapping
        if mapping not in ("none", "name") or (mapping == "name" and facts.partition_columns):
            raise SourceError(
                f"source {self.name} ({self.path}) maps column names by id, or maps names and is partitioned, so its new files "
                "cannot be read one by one. Set delta.enableChangeDataFeed and declare a PRIMARY KEY"
            )
        layout = FileLayout(self.path, schema, facts.partition_columns, mapping == "name")
        rows = layout.read(spark, [file.path for file in files])
        weight = F.lit(1).cast("bigint").alias(WEIGHT)
        columns: list[Column] = [F.col(quoted(name)) for name in schema.names]
        if ROW_ID in generated_columns:
            columns.append(_row_id(self.path, numbered or files, pin.serial_base_ms).alias(ROW_ID))
        if COMMIT_VERSION in generated_columns:
            columns.append(_of_file(self.path, files, [file.commit for file in files]).alias(COMMIT_VERSION))
        return rows.select(*columns, weight)


def _union_of_common(rows: DataFrame, more: DataFrame) -> DataFrame:
    """Rows of two table versions, with the columns that both have.

    No view reads a column that changed in between.
    """
    types = {field.name: field.dataType for field in more.schema.fields}
    common = [quoted(field.name) for field in rows.schema.fields if types.get(field.name) == field.dataType]
    return rows.select(*common).union(more.select(*common))


def _summed(rows: DataFrame, columns: Collection[str] | None) -> DataFrame:
    """Equal rows of a change set summed, and those that cancel out dropped."""
    kept = [name for name in rows.columns if name != WEIGHT and (columns is None or name in columns)]
    typed = [column for column in columns_of_schema(rows.schema) if column.name in kept]
    return consolidate(rows, typed)


def _net_strategy(found: ChangeRange, net: NetChange) -> str:
    """Description of a net change: its files and the reason."""
    if found.files == () or (found.files is None and not net.names):
        return "nothing changed"
    if found.files is None:
        return f"all rows of both versions, by Delta, {len(net.names)} changed file(s) netted: {net.reason}"
    hint = ", which would have only the changed rows" if net.advice and net.reason == _NO_FEED else ""
    return f"{len(found.files)} removed or added file(s) out of {net.total_files}, netted: {net.reason}{hint}"


def _weight_of_feed() -> Column:
    insertion = F.col(CHANGE_TYPE).isin(*INSERTIONS)
    return F.when(insertion, F.lit(1)).otherwise(F.lit(-1)).cast("bigint").alias(WEIGHT)


def _reads_appended(found: ChangeRange, generated_columns: Collection[str]) -> bool:
    """Whether changes are read from appended files, which alone give rows their places."""
    return found.only_appends and (bool(generated_columns) or not found.has_change_feed)


def _row_id(table: str, files: Sequence[AppendedFile], base_ms: int) -> Column:
    """Serial id of a row: rows of earlier files, plus its position in its file."""
    if not files:
        return F.lit(None).cast("bigint")
    before = accumulate((file.rows for file in files[:-1]), initial=0)
    return row_id_of_ordinal(base_ms, _of_file(table, files, list(before)) + F.col("_metadata.row_index"))


def _of_file(
    table: str, files: Sequence[AppendedFile], values: Sequence[int | str | None], data_type: str = "bigint"
) -> Column:
    """The value that belongs to the file of a row."""
    if not files:
        return F.lit(None).cast(data_type)
    names = [file_name(file.path) for file in files]
    where = F.col("_metadata.file_name")
    if len(set(names)) < len(names):  # a converted table may have a file of the same name in each folder
        names, where = [full_path(table, file.path) for file in files], _path_of_file()
    pairs = [F.lit(part) for name, value in zip(names, values, strict=True) for part in (name, value)]
    of_file = F.create_map(*(part.cast(data_type) if n % 2 else part for n, part in enumerate(pairs)))
    return F.element_at(of_file, where)


def _path_of_file() -> Column:
    """Path of a row's file.

    Spark has it as an address, escaped but for plus signs.
    """
    plain = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(plain, "^file:/+", "/")
