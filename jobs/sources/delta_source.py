"""A Delta table as a source: pinned versions, change feed, and appended files.

A keyless append-only source gets a Serial ``_row_id``, a number of its rows in the order of commits, files and positions.
It is worked out from the log, so reading the same range again gives the same ids.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.sources.change_files import CHANGE_TYPE, INSERTIONS, read_changes
from relstate_dagster.jobs.sources.commit_order import AppendedFile, CommitOrder
from relstate_dagster.jobs.sources.delta_changes import NO_FEED, DeltaChanges
from relstate_dagster.jobs.sources.delta_versions import DeltaVersions
from relstate_dagster.jobs.sources.file_layout import FileLayout, physical_name, struct_of
from relstate_dagster.jobs.sources.file_values import file_metadata, value_of_file
from relstate_dagster.jobs.sources.net_files import must_be_netted, summed, union_of_common
from relstate_dagster.jobs.sources.pins import ChangeRange, NetChange, Pin
from relstate_dagster.jobs.sources.protocol import Source, insertions
from relstate_dagster.jobs.sources.row_tracking import changed_rows, saves_comparing
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.state_lib.constants import COMMIT_VERSION, ROW_ID, WEIGHT
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.folders import is_table
from relstate_dagster.state_lib.lake.log import TableFacts
from relstate_dagster.state_lib.lake.readable import why_unreadable
from relstate_dagster.state_lib.lake.statistics import byte_count, row_count
from relstate_dagster.state_lib.serial import next_base_ms, row_id_of_ordinal
from relstate_dagster.state_lib.sql_text import quoted

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
        self.versions = DeltaVersions(name, path)
        self._order = CommitOrder(name, self.versions.log)
        self._changes = DeltaChanges(name, self.versions)

    def facts(self, version: int | None = None) -> TableFacts:
        """Facts of the table, read once for each version."""
        return self.versions.facts(version)

    def files(self, pin: Pin) -> SnapshotFiles:
        """The files of the table as of a pin, listed once."""
        return self.versions.files(pin)

    def layout(self, version: int) -> FileLayout | None:
        """Layout of the table's files; ``None`` if only Delta can read them."""
        return self.versions.layout(version)

    def check_range(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """As :meth:`.jobs.sources.delta_changes.DeltaChanges.check_range`."""
        return self._changes.check_range(since, until, append_only=append_only)

    def check_version(self, version: int) -> None:
        """Look whether the table can be read at a version.

        Raises
        ------
        SourceError : it has no such version, or not any more.
        """
        where, newest = self.versions.where, self.versions.facts().version
        if version > newest:
            raise SourceError(f"{where} has no version {version}: the newest is {newest}")
        try:
            self.versions.facts(version)
        except SourceError as error:
            raise SourceError(f"{where} cannot be read at version {version} any more: its log was cleaned up") from error

    def exists(self) -> bool:
        """Whether there is a Delta table at its path; a damaged one is."""
        return is_table(self.path)

    def why_unreadable(self, pin: Pin) -> str | None:
        """As of :func:`.state_lib.lake.readable.why_unreadable`."""
        return why_unreadable(self.path, pin.version)

    def pin(self, previous: Pin | None, until: int | None = None) -> Pin:
        """Pin the newest version, or one that is to be read at most.

        The same pin again where nothing was committed since, without opening the table.
        """
        is_early = previous is not None and (until is None or previous.version <= until)
        if previous is not None and is_early and self.versions.is_there(previous):
            is_last = previous.version == until or not self.versions.log.has(previous.version + 1)
            if is_last:
                return previous
        facts = self.versions.facts()
        if until is not None and until < facts.version:
            facts = self.versions.facts(until)
        base = 0
        if not self.key:
            # A keyless source only appends, or gets no ids: an epoch before had at most the rows that are there now.
            last = None if previous is None else previous.serial_base_ms
            rows = sum(file.rows for file in self.versions.counted_files(facts.version))
            base = next_base_ms(time.time_ns() // 1_000_000, last, rows)
        return Pin(facts.version, facts.table_uuid, facts.schema_json, base, self.versions.checked_fingerprint(facts.version))

    def totals(self, pin: Pin | None = None) -> tuple[int, int | None]:
        """Bytes of the table's files, and rows where the log has them."""
        if pin is not None and pin.first_files is not None:
            files = self.versions.files(pin).files
            return byte_count(files), row_count(files)
        return self.versions.table.totals(None if pin is None else pin.version)

    def newest_version(self, least: int | None = None) -> int:
        """The newest version, from the names of log files."""
        return self.versions.log.latest_version(least)

    def snapshot(self, spark: SparkSession, pin: Pin) -> DataFrame:
        """The table as of a pin, without weights and hidden columns.

        Raises
        ------
        SourceError : another commit has that version now.
        """
        self.versions.check_is_there(pin)
        if pin.first_files is not None:
            return self.versions.files(pin).read(spark, None)
        return self.versions.rows(spark, pin.version)

    def all_rows(self, spark: SparkSession, pin: Pin, generated_columns: Collection[str] = ()) -> DataFrame:
        """Every row as of a pin, as an insertion.

        With some of the columns that sources make, if asked for.
        """
        self.versions.check_is_there(pin)
        if pin.first_files is not None:
            return self._some_rows(spark, pin, 0, pin.first_files, generated_columns)
        if COMMIT_VERSION in generated_columns:
            files = self._order.files(pin.version, {file.path for file in self.versions.data_files(pin.version)})
            return self._read_files(
                spark, pin, self.versions.counted(files) if ROW_ID in generated_columns else files, generated_columns
            )
        if ROW_ID in generated_columns:
            return self._read_files(spark, pin, self.versions.counted_files(pin.version), generated_columns)
        return insertions(self.snapshot(spark, pin))

    def _some_rows(
        self, spark: SparkSession, pin: Pin, first: int, until: int | None, generated_columns: Collection[str] = ()
    ) -> DataFrame:
        """As :meth:`all_rows`, of some files, by their places in the order of paths."""
        if ROW_ID in generated_columns:
            files = self.versions.counted_files(pin.version)
            return self._read_files(spark, pin, files[first:until], generated_columns, numbered=files)
        return insertions(self.versions.files(pin.whole).some(first, until).read(spark, None))

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
        if found.files is not None and self.versions.layout(until.version) is not None:
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
            return rest if later is None else union_of_common(rest, later)
        if found.net is not None:
            return self._net_changes(spark, since, until, found, found.net, columns)
        if since.version == until.version or (not found.appended and found.only_appends):
            return None
        layout = None if generated_columns and found.only_appends else self.versions.layout(until.version)
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
        layout = self.versions.layout(until.version)
        if found.files is not None and layout is not None:
            if not found.files:
                return None
            if not must_be_netted(found.files):
                return read_changes(spark, layout, found.files)
            if net.tracking is None or not saves_comparing(layout.schema, columns):
                return summed(read_changes(spark, layout, found.files), columns)
            # What is left is summed as well: a row that was written again without a change has another version.
            rows = read_changes(spark, layout, found.files, net.tracking)
            return summed(changed_rows(spark, rows, net.tracking.names(layout.schema.names)), columns)
        if not net.names:
            return None
        before, after = (self._rows_of(spark, pin, net.names, weight) for pin, weight in ((since, -1), (until, 1)))
        return summed(union_of_common(before, after), columns)

    def _rows_of(self, spark: SparkSession, pin: Pin, names: Collection[str], weight: int) -> DataFrame:
        """The rows of a version that are in files of some names, read by Delta."""
        self.versions.check_is_there(pin)
        rows = self.versions.rows_by_delta(spark, pin.version)
        if len(names) <= _MOST_NAMES:
            rows = rows.where(file_metadata(rows, "file_name").isin(*sorted(names)))
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
                f"{self.versions.where} does not say which commit made which change between versions "
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
                f"{self.versions.where}: the changes between versions {since.version} and {until.version} "
                f"cannot be read: {str(error).splitlines()[0]}"
            ) from error

    def _appended_by_values(
        self, spark: SparkSession, pin: Pin, found: ChangeRange, partitions: Mapping[str, Mapping[str, str | None]]
    ) -> DataFrame:
        """Rows of appended files as insertions, with partition values from the log.

        Their texts are cast by the session, as Delta does. Folders may have other texts: those of times are local.
        """
        schema, facts = struct_of(pin.schema_json), self.versions.facts(pin.version)
        is_mapped = facts.column_mapping == "name"
        stored = T.StructType([field for field in schema.fields if field.name not in facts.partition_columns])
        rows = FileLayout(self.path, stored, (), is_mapped).read(spark, [file.path for file in found.appended])
        columns = []
        for field in schema.fields:
            column = F.col(quoted(field.name))
            if field.name in facts.partition_columns:
                logged = physical_name(field) if is_mapped else field.name
                texts = [partitions[file.path].get(logged) or None for file in found.appended]
                column = (
                    value_of_file(self.path, rows, [file.path for file in found.appended], texts, "string")
                    .cast(field.dataType)
                    .alias(field.name)
                )
            columns.append(column)
        return rows.select(*columns, F.lit(1).cast("bigint").alias(WEIGHT))

    def _appended(self, spark: SparkSession, until: Pin, found: ChangeRange, generated_columns: Collection[str]) -> DataFrame:
        if found.partitions is not None and not generated_columns:
            return self._appended_by_values(spark, until, found, found.partitions)
        files = self.versions.counted(found.appended) if ROW_ID in generated_columns else found.appended
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
        facts, schema = self.versions.facts(pin.version), struct_of(pin.schema_json)
        mapping = facts.column_mapping
        if mapping not in ("none", "name") or (mapping == "name" and facts.partition_columns):
            raise SourceError(
                f"{self.versions.where} maps column names by id, or maps names and is partitioned, so its new files "
                "cannot be read one by one. Set delta.enableChangeDataFeed and declare a PRIMARY KEY"
            )
        layout = FileLayout(self.path, schema, facts.partition_columns, mapping == "name")
        rows = layout.read(spark, [file.path for file in files])
        weight = F.lit(1).cast("bigint").alias(WEIGHT)
        columns: list[Column] = [F.col(quoted(name)) for name in schema.names]
        if ROW_ID in generated_columns:
            columns.append(_row_id(self.path, rows, numbered or files, pin.serial_base_ms).alias(ROW_ID))
        if COMMIT_VERSION in generated_columns:
            columns.append(
                value_of_file(self.path, rows, [file.path for file in files], [file.commit for file in files]).alias(
                    COMMIT_VERSION
                )
            )
        return rows.select(*columns, weight)


def _net_strategy(found: ChangeRange, net: NetChange) -> str:
    """Description of a net change: its files and the reason."""
    if found.files == () or (found.files is None and not net.names):
        return "nothing changed"
    if found.files is None:
        return f"all rows of both versions, by Delta, {len(net.names)} changed file(s) netted: {net.reason}"
    hint = ", which would have only the changed rows" if net.advice and net.reason == NO_FEED else ""
    return f"{len(found.files)} removed or added file(s) out of {net.total_files}, netted: {net.reason}{hint}"


def _weight_of_feed() -> Column:
    insertion = F.col(CHANGE_TYPE).isin(*INSERTIONS)
    return F.when(insertion, F.lit(1)).otherwise(F.lit(-1)).cast("bigint").alias(WEIGHT)


def _reads_appended(found: ChangeRange, generated_columns: Collection[str]) -> bool:
    """Whether changes are read from appended files, which alone give rows their places."""
    return found.only_appends and (bool(generated_columns) or not found.has_change_feed)


def _row_id(table: str, rows: DataFrame, files: Sequence[AppendedFile], base_ms: int) -> Column:
    """Serial id of a row: rows of earlier files, plus its position in its file."""
    if not files:
        return F.lit(None).cast("bigint")
    before = accumulate((file.rows for file in files[:-1]), initial=0)
    ordinal = value_of_file(table, rows, [file.path for file in files], list(before)) + file_metadata(rows, "row_index")
    return row_id_of_ordinal(base_ms, ordinal)
