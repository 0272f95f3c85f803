"""A source as of one version, read as the Parquet files that the log names: where a join looks rows up in place.

Spark plans each read of a Delta table by jobs over its log. The files of a pinned version are listed once a run instead,
and only those are read that can hold what is looked for. Where a file's rows are not simply its Parquet rows (deletion
vectors, mapped column names, partition columns kept out of the files, widened types) Delta reads the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from jobs.sources.change_files import full_path, readable_as_files
from jobs.sources.delta_source import ChangeRange
from state_lib.delta_files import DataFile, data_files
from state_lib.opened_table import OpenedTable
from state_lib.within import Within


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The files of a source at a version.

    Parameters
    ----------
    path : where the Delta table lies.
    files : all data files of the version.
    are_rows : whether the table's rows are the files' Parquet rows.
    """

    path: str
    files: tuple[DataFile, ...]
    are_rows: bool

    def before(self, found: ChangeRange) -> tuple[DataFile, ...] | None:
        """The files that held the rows before some changes: without opening the version before them, which reads the log anew.

        ``None`` where the files of today do not tell: rows were deleted or updated, or new rows are in a rewritten file.
        """
        gained = {path for path, _ in found.appended}
        before = tuple(file for file in self.files if file.path not in gained)
        is_known = self.are_rows and found.only_appends and len(before) + len(gained) == len(self.files)
        return before if is_known else None

    def sample(self, rows: int) -> SnapshotFiles:
        """As few files as have so many rows: the one in the middle first, since new rows are often in the last ones."""
        middle = len(self.files) // 2
        chosen: list[DataFile] = []
        for file in (*self.files[middle:], *reversed(self.files[:middle])):
            if sum(f.rows for f in chosen) >= rows:
                break
            chosen.append(file)
        return replace(self, files=tuple(chosen))

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    def read(self, spark: SparkSession, schema: T.StructType, within: Within | None) -> DataFrame:
        """The rows, those that ``within`` excludes left out as far as files and pages tell; no Spark job.

        Returns
        -------
        The columns of ``schema``.
        """
        files = self.files
        if within is not None:
            files = tuple(f for f in files if within.may_be_in(f.lower, f.upper, within.column))
        if not files:
            return spark.createDataFrame([], schema)
        rows = spark.read.schema(schema).parquet(*[full_path(self.path, f.path) for f in files])
        if within is None:
            return rows
        data_type = schema[within.column].dataType.simpleString()
        return within.restrict(rows, within.column, data_type, files)


def snapshot_files(opened: OpenedTable, version: int) -> SnapshotFiles:
    """The files of a Delta table at a version, from its log."""
    table = opened.at(version)
    metadata = table.metadata()
    properties = {name: value for name, value in metadata.configuration.items() if value is not None}
    plain = readable_as_files(properties, tuple(metadata.partition_columns))
    return SnapshotFiles(opened.path, data_files(table), plain and not _has_deletion_vectors(table))


def _has_deletion_vectors(table: DeltaTable) -> bool:
    """Whether some rows of an opened table's files are not its rows. Most tables cannot have any, and nothing is listed."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return False
    return bool(pa.table(table.deletion_vectors()).num_rows)
