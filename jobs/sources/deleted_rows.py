"""Deletion vectors of a Delta table, read by delta-rs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.sources.file_layout import file_name
from relstate_dagster.jobs.sources.file_values import file_metadata, free_name
from relstate_dagster.state_lib.collected import frame_of
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.tuning import tuning


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Deleted rows, by file.

    Parameters
    ----------
    places : for the name of each file that has deleted rows, their places in it, ascending.
    """

    places: Mapping[str, pa.Int64Array] = field(default_factory=dict)

    @classmethod
    def of_kept(cls, kept: Mapping[str, pa.BooleanArray]) -> DeletedRows:
        """Deleted rows of files, from flags of kept rows up to the last deleted one."""
        return cls({name: pc.indices_nonzero(pc.invert(of_file)).cast(pa.int64()) for name, of_file in kept.items()})

    def __contains__(self, path: str) -> bool:
        """Whether a file, by its path in the log, has deleted rows."""
        return file_name(path) in self.places

    def positions(self, path: str) -> pa.Int64Array:
        """The places of the deleted rows in a file, ascending."""
        return self.places.get(file_name(path), pa.array([], pa.int64()))

    def without(self, path: str, rows: pa.Table) -> pa.Table:
        """All rows of a file without those deleted."""
        if path not in self:
            return rows
        kept = np.ones(rows.num_rows, dtype=bool)
        kept[self.positions(path).to_numpy()] = False
        return rows.filter(pa.array(kept))

    def left_out_of(self, spark: SparkSession, rows: DataFrame, paths: Sequence[str]) -> DataFrame:
        """Rows that Spark reads from files, without deleted ones.

        No Spark job, but one to send these once it runs.
        """
        return _at_places(spark, rows, {path: self.positions(path) for path in paths}, "left_anti")


def rows_at(spark: SparkSession, rows: DataFrame, positions: Mapping[str, pa.Int64Array]) -> DataFrame:
    """Of the rows that Spark reads from some files those at some places.

    Parameters
    ----------
    positions : by the path of a file.
    """
    return _at_places(spark, rows, positions, "left_semi")


def _at_places(spark: SparkSession, rows: DataFrame, positions: Mapping[str, pa.Int64Array], how: str) -> DataFrame:
    file, place = free_name("_file_name", rows.columns), free_name("_file_position", rows.columns)
    names = [pa.repeat(file_name(path), len(at)) for path, at in positions.items()]
    places = pa.table({file: pa.chunked_array(names), place: pa.chunked_array(list(positions.values()))})
    known = frame_of(spark, places)
    sent = known.hint("broadcast") if places.num_rows <= tuning().marked_rows else known
    placed = rows.select("*", file_metadata(rows, "file_name").alias(file), file_metadata(rows, "row_index").alias(place))
    return placed.join(sent, [file, place], how).select(*map(quoted, rows.columns))


#: What delta-rs says of tables with type widening, a check of VACUUM's protocol, shredded variants, and what is yet to come.
_UNKNOWN_FEATURE: Final = "Unsupported table features"


def deleted_rows(table: DeltaTable) -> DeletedRows | None:
    """Those of an opened version; ``None`` where only Delta knows them.

    Another file may have the name of one with deleted rows. delta-rs reads no vectors of a table that has a feature which
    it does not know, though it reads its log. Most tables cannot have any: nothing is read.

    Raises
    ------
    SourceError : a deletion vector is gone.
    """
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return DeletedRows()
    try:
        vectors = pa.table(table.deletion_vectors())
    except DeltaError as error:
        if _UNKNOWN_FEATURE in str(error):
            return None
        raise SourceError(
            f"a deletion vector of {table.table_uri} at version {table.version()} cannot be read, probably because it was "
            f"vacuumed ({error}). Rebuild the views that read it with --full-refresh, and keep files longer than the time "
            "between two runs (delta.deletedFileRetentionDuration)"
        ) from error
    names = [file_name(path) for path in vectors["filepath"].to_pylist()]
    alike = Counter(path.rsplit("/", 1)[-1] for path in table.file_uris()) if names else Counter()
    if any(alike[name] > 1 for name in names):
        return None
    return DeletedRows.of_kept(dict(zip(names, (vector.values for vector in vectors["selection_vector"]), strict=True)))
