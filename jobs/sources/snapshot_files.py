"""A source as of one version, read as the Parquet files that the log names: where a join looks rows up in place.

Spark plans each read of a Delta table by jobs over its log. The files of a pinned version are listed once a run instead,
and only those are read that can hold what is looked for. Where a file's rows are not simply its Parquet rows (deletion
vectors, mapped column names, partition columns kept out of the files, widened types) Delta reads the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from jobs.sources.change_files import full_path, readable_as_files
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
    with_deletions = bool(pa.table(table.deletion_vectors()).num_rows)
    return SnapshotFiles(opened.path, data_files(table), plain and not with_deletions)
