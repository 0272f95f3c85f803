"""A source at one version as Parquet files, for lookups in place.

Spark plans each read of a Delta table by jobs over its log. The files of a pinned version are listed once a run instead,
and only those are read that can hold what is looked for. What a file's layout does not tell (see
:mod:`.jobs.sources.file_layout`) Delta reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.sources.deleted_rows import DeletedRows
from relstate_dagster.jobs.sources.file_layout import FileLayout
from relstate_dagster.jobs.sources.pins import ChangeRange
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.statistics import DataFile, byte_count
from relstate_dagster.state_lib.lookup_keys import LookupKeys


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The files of a source at a version.

    Parameters
    ----------
    layout : how they hold the table's rows; ``None`` where only Delta can read them.
    files : all data files of the version.
    deleted : the rows of these that are not the table's.
    page_rows : rows of a page in them, if they were written with a certain number.
    """

    layout: FileLayout | None
    files: tuple[DataFile, ...]
    deleted: DeletedRows = field(default_factory=DeletedRows)
    page_rows: int | None = None

    @property
    def are_rows(self) -> bool:
        """Whether the table's rows can be read from the files."""
        return self.layout is not None

    def have(self, columns: Sequence[str]) -> bool:
        """Whether the files have exactly the table's rows, and columns under these names."""
        layout = self.layout
        if layout is None or layout.is_mapped or self.deleted.places:
            return False
        return not set(columns) & set(layout.partitioned_by)

    def before(self, found: ChangeRange) -> SnapshotFiles | None:
        """Files before some changes, without opening that version.

        ``None`` unless only whole files were appended since.

        ``None`` where the files of today do not tell: rows were deleted or updated, or new rows are in a rewritten file.
        """
        gained = {file.path for file in found.appended}
        before = tuple(file for file in self.files if file.path not in gained)
        is_known = self.are_rows and found.only_appends and len(before) + len(gained) == len(self.files)
        return replace(self, files=before) if is_known else None

    def sample(self, rows: int) -> SnapshotFiles:
        """A few files with about that many rows, from the middle of the order.

        New rows are often in the last ones.
        """
        middle = len(self.files) // 2
        chosen: list[DataFile] = []
        for file in (*self.files[middle:], *reversed(self.files[:middle])):
            if sum(f.rows for f in chosen) >= rows:
                break
            chosen.append(file)
        return replace(self, files=tuple(chosen))

    def some(self, first: int, until: int | None) -> SnapshotFiles:
        """Those from a place in their order up to another one."""
        return replace(self, files=self.files[first:until])

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return byte_count(self.files)

    def files_with(self, lookup_keys: LookupKeys | None) -> tuple[DataFile, ...]:
        """The files that can have rows within some values."""
        if lookup_keys is None:
            return self.files
        return tuple(f for f in self.files if lookup_keys.may_be_in(f.lower, f.upper, lookup_keys.column))

    def read(self, spark: SparkSession, lookup_keys: LookupKeys | None) -> DataFrame:
        """The rows of the files; no Spark job.

        Those that ``lookup_keys`` excludes are left out as far as files and pages tell.

        Returns
        -------
        The columns of the table.

        Raises
        ------
        SourceError : only Delta can read them.
        """
        if self.layout is None:
            raise SourceError("the rows of this table can only be read by Delta")
        files = self.files_with(lookup_keys)
        whole = [f.path for f in files if f.path not in self.deleted]
        partly = [f.path for f in files if f.path in self.deleted]
        frames = [self.layout.read(spark, whole)] if whole or not partly else []
        if partly:
            frames.append(self.deleted.left_out_of(spark, self.layout.read(spark, partly), partly))
        rows = reduce(DataFrame.union, frames)
        if lookup_keys is None or not files:
            return rows
        data_type = self.layout.schema[lookup_keys.column].dataType.simpleString()
        return lookup_keys.restrict(rows, lookup_keys.column, data_type, files, self.page_rows)

    def rows_read(self, lookup_keys: LookupKeys) -> float:
        """About how many rows are read to find those within some values."""
        return lookup_keys.rows_read(self.files, lookup_keys.column, self.page_rows)
