"""A Delta table as a source: pinned by version, read by its change data feed or by the files it appended.

A keyless append-only source gets a Serial ``_row_id``, a number of its rows in the order of commits, files and positions.
It is worked out from the log, so reading the same range again gives the same ids.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.planner.nodes import quoted
from jobs.sources.change_files import CHANGE_TYPE, INSERTIONS, ChangeFile, change_files, read_changes
from jobs.sources.deleted_rows import DeletedRows, deleted_rows
from jobs.sources.file_layout import FileLayout, file_name, struct_of
from state_lib.constants import ROW_ID, WEIGHT
from state_lib.errors import SourceError
from state_lib.lake.log import Action, DeltaLog, TableFacts, commit_info, files_of, rows_changed, table_facts
from state_lib.lake.statistics import data_files
from state_lib.lake.table import DeltaError, OpenedTable
from state_lib.serial import next_base_ms, row_id_of_ordinal

_REBUILD: Final = "rebuild the views that read it with --full-refresh"
#: Of so many commits in a range that marked rows as deleted and recorded no changes the vectors are compared.
_MARKING_COMMITS: Final = 8
_CDF_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


@dataclass(frozen=True, slots=True)
class Pin:
    """A source as of one version: what an epoch reads.

    ``serial_base_ms`` is the first millisecond of the Serial ids that this epoch may hand out (keyless sources).
    """

    version: int
    table_uuid: str
    schema_json: str
    serial_base_ms: int = 0

    @property
    def identity(self) -> str:
        """Names the commit that is pinned."""
        return f"{self.table_uuid}@{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the catalog."""
        return {
            "version": self.version,
            "table_uuid": self.table_uuid,
            "schema": self.schema_json,
            "serial_base_ms": self.serial_base_ms,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Pin:
        """The pin that :meth:`to_dict` wrote."""
        return cls(values["version"], values["table_uuid"], values["schema"], values.get("serial_base_ms", 0))


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The commits between two pins: rows and bytes they changed, and the files they appended.

    ``files`` are the files that hold the changes, where they can be read as they are; ``None`` where Delta must.
    """

    rows_inserted: int
    rows_deleted: int
    changed_bytes: int
    appended: tuple[tuple[str, int], ...]
    only_appends: bool
    has_change_feed: bool
    files: tuple[ChangeFile, ...] | None = None


class DeltaSource:
    """One source of a warehouse.

    Parameters
    ----------
    name : identifier that views use.
    path : where the Delta table lies.
    key : primary key columns; empty for none.
    """

    def __init__(self, name: str, path: str, key: Sequence[str] = ()) -> None:
        self.name = name
        self.path = path
        self.key = tuple(key)
        self.log = DeltaLog(path)
        self.table = OpenedTable(path)
        self._deleted: dict[int, DeletedRows | None] = {}

    def facts(self, version: int | None = None) -> TableFacts:
        """What the table says of itself."""
        return table_facts(self.table, version)

    def pin(self, previous: Pin | None) -> Pin:
        """Pin the newest version; the same pin again where nothing was committed since, without opening the table."""
        if previous is not None and self.log.latest_version(previous.version) == previous.version:
            return previous
        facts = self.facts()
        base = 0
        if not self.key:
            # A keyless source only appends, or gets no ids: an epoch before had at most the rows that are there now.
            last = None if previous is None else previous.serial_base_ms
            base = next_base_ms(time.time_ns() // 1_000_000, last, self._rows_at(facts.version))
        return Pin(facts.version, facts.table_uuid, facts.schema_json, base)

    def _rows_at(self, version: int) -> int:
        return sum(max(count, 0) for _, count in self._files_at(version))

    def _files_at(self, version: int) -> list[tuple[str, int]]:
        """Data files of a version with their row counts, in the order of their paths."""
        return [(file.path, file.rows) for file in data_files(self.table.at(version))]

    def check_range(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """Check, before anything is read, that the changes between two pins can be had, and say how large they are.

        Raises
        ------
        SourceError : the table was replaced or went back, its schema changed, a commit or a file of the range is gone,
            or rows changed that no change feed recorded.
        """
        where = f"source {self.name} ({self.path})"
        if since.table_uuid != until.table_uuid or until.version < since.version:
            raise SourceError(f"{where} is another table than at version {since.version}: it was replaced; {_REBUILD}")
        if json.loads(since.schema_json) != json.loads(until.schema_json):
            raise SourceError(
                f"{where} changed its schema between versions {since.version} and {until.version}: "
                f"{_schema_difference(since.schema_json, until.schema_json)}; {_REBUILD}"
            )
        facts = self.facts(until.version)
        inserted = deleted = changed_bytes = 0
        appended: list[tuple[str, int]] = []
        marking_commits = 0
        files: list[str] = []
        only_appends = True
        layout = FileLayout.of(self.table.path, facts)
        changed: list[ChangeFile] | None = None if layout is None else []
        for version in range(since.version + 1, until.version + 1):
            actions = self.log.commit(version)
            plus, minus = rows_changed(actions)
            inserted, deleted = inserted + plus, deleted + minus
            recorded, adds, removes = files_of(actions)
            if removes or recorded:
                only_appends = False
                self._check_recorded(actions, version, facts, append_only=append_only)
            read = recorded or [*adds, *removes]
            files += [f["path"] for f in read if "://" not in f["path"] and not f["path"].startswith("file:")]
            vectors = partial(self._vectors, version) if marking_commits < _MARKING_COMMITS else lambda: None
            of_commit = None if layout is None else change_files(layout, actions, vectors)
            if of_commit is None:
                changed_bytes += sum(int(f.get("size") or 0) for f in read)
            else:
                changed_bytes += sum(f.bytes for f in of_commit)
                marking_commits += any(f.positions is not None for f in of_commit)
            changed = None if changed is None or of_commit is None else [*changed, *of_commit]
            appended += [(a["path"], int(json.loads(a.get("stats") or "{}").get("numRecords", -1))) for a in adds]
        gone = self.log.missing_files(files)
        if gone:
            raise SourceError(
                f"{where}: {len(gone)} files with the changes between versions {since.version} and {until.version} are "
                f"gone (vacuumed away), the first is {gone[0]}; {_REBUILD}, and keep files longer than the time between "
                "two runs (delta.deletedFileRetentionDuration)"
            )
        read_as_files = None if changed is None else tuple(changed)
        return ChangeRange(
            inserted, deleted, changed_bytes, tuple(appended), only_appends, facts.has_change_feed, read_as_files
        )

    def _check_recorded(self, actions: list[Action], version: int, facts: TableFacts, *, append_only: bool) -> None:
        """Raise where a commit updated or deleted rows, and it is not recorded which, or must not be."""
        if not facts.has_change_feed:
            raise SourceError(
                f"source {self.name} ({self.path}) has no change data feed, and version {version} "
                f"({commit_info(actions).get('operation', 'a commit')}) updated or deleted rows; set TBLPROPERTIES "
                f"('delta.enableChangeDataFeed' = 'true') and then {_REBUILD}"
            )
        if append_only:
            raise SourceError(
                f"source {self.name} ({self.path}) is declared append-only, but version {version} updated or deleted rows; "
                f"drop the declaration and {_REBUILD}"
            )

    def _vectors(self, version: int) -> tuple[DeletedRows, DeletedRows] | None:
        """The rows deleted before and after a commit; ``None`` where that cannot be told."""
        try:
            before, after = (self.deleted(v) for v in (version - 1, version))
        except DeltaError:  # the version before is not in the log any more
            return None
        return None if before is None or after is None else (before, after)

    def deleted(self, version: int) -> DeletedRows | None:
        """As :func:`jobs.sources.deleted_rows.deleted_rows` of a version, read once."""
        if version not in self._deleted:
            self._deleted[version] = deleted_rows(self.table.at(version))
        return self._deleted[version]

    def layout(self, version: int) -> FileLayout | None:
        """How the table's files hold its rows; ``None`` where only Delta can read them."""
        return FileLayout.of(self.table.path, self.facts(version))

    def snapshot(self, spark: SparkSession, pin: Pin) -> DataFrame:
        """The table as of a pin, without weights and hidden columns."""
        return spark.read.format("delta").option("versionAsOf", pin.version).load(self.path)

    def all_rows(self, spark: SparkSession, pin: Pin, *, with_row_id: bool) -> DataFrame:
        """Every row as of a pin, as an insertion."""
        if with_row_id:
            return self._read_files(spark, pin, self._files_at(pin.version), with_row_id=True)
        return self.snapshot(spark, pin).withColumn(WEIGHT, F.lit(1).cast("bigint"))

    def changes(
        self, spark: SparkSession, since: Pin, until: Pin, found: ChangeRange, *, with_row_id: bool
    ) -> DataFrame | None:
        """The change set between two pins: the columns of the table and the weight; ``None`` if there is none."""
        if since.version == until.version or (not found.appended and found.only_appends):
            return None
        if found.only_appends and (with_row_id or not found.has_change_feed):
            return self._appended(spark, until, found, with_row_id=with_row_id)
        layout = self.layout(until.version)
        if found.files is not None and layout is not None:
            return read_changes(spark, layout, found.files) if found.files else None
        try:
            feed = (
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
        insertion = F.col(CHANGE_TYPE).isin(*INSERTIONS)
        weight = F.when(insertion, F.lit(1)).otherwise(F.lit(-1)).cast("bigint")
        columns = [quoted(c) for c in feed.columns if c not in _CDF_COLUMNS]
        return feed.select(*columns, weight.alias(WEIGHT))

    def _appended(self, spark: SparkSession, until: Pin, found: ChangeRange, *, with_row_id: bool) -> DataFrame:
        return self._read_files(spark, until, list(found.appended), with_row_id=with_row_id)

    def _read_files(self, spark: SparkSession, pin: Pin, files: Sequence[tuple[str, int]], *, with_row_id: bool) -> DataFrame:
        """Rows of some data files as insertions, read as Parquet: only there does a row know its place in its file.

        Files of a table that only ever appends hold nothing but live rows, whatever rewrites them later.
        """
        facts, schema = self.facts(pin.version), struct_of(pin.schema_json)
        mapping = facts.column_mapping
        if mapping not in ("none", "name") or (mapping == "name" and facts.partition_columns):
            raise SourceError(
                f"source {self.name} ({self.path}) maps column names by id, or is partitioned besides, and has no key or no "
                "change data feed, so its new files cannot be read one by one; set delta.enableChangeDataFeed and declare a "
                "PRIMARY KEY"
            )
        layout = FileLayout(self.path, schema, facts.partition_columns, mapping == "name")
        rows = layout.read(spark, [path for path, _ in files])
        weight = F.lit(1).cast("bigint").alias(WEIGHT)
        columns = [quoted(name) for name in schema.names]
        if not with_row_id:
            return rows.select(*columns, weight)
        return rows.select(*columns, _row_id(files, pin.serial_base_ms).alias(ROW_ID), weight)


def _row_id(files: Sequence[tuple[str, int]], base_ms: int) -> Column:
    """The Serial id of a row: the rows of earlier files, plus its position in its own file."""
    first: list[Column] = []
    ordinal = 0
    for path, rows in files:
        if rows < 0:
            raise SourceError(f"{path} has no row count in the log; write it with statistics on, or declare a PRIMARY KEY")
        first += [F.lit(file_name(path)), F.lit(ordinal).cast("bigint")]
        ordinal += rows
    if not first:
        return F.lit(None).cast("bigint")
    offset = F.element_at(F.create_map(*first), F.col("_metadata.file_name"))
    return row_id_of_ordinal(base_ms, offset + F.col("_metadata.row_index"))


def _schema_difference(before: str, after: str) -> str:
    old = {f["name"]: f for f in json.loads(before)["fields"]}
    new = {f["name"]: f for f in json.loads(after)["fields"]}
    parts = [f"added {name}" for name in new if name not in old]
    parts += [f"dropped {name}" for name in old if name not in new]
    parts += [f"changed {name}" for name in old if name in new and old[name] != new[name]]
    return ", ".join(parts) or "only its metadata differ"
