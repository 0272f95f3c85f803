"""An index of a source: its rows in the order of another column.

A join looks up rows of a large source in place. By a column that the source is not ordered by (a line's part) there is one of
the values on every page of it, and all pages are read. A copy in the order of that column has them on few.

The copy is the source as of one version of it, and what has changed since is read beside it. So rows are the same with an
index as without, however old it is. Nothing of an epoch depends on it but time.

Stored: a Delta table of some columns of the source, called ``c0`` (the index's own), ``c1``, …, and ``_weight``. It has the
rows as of some version, sorted, each file another range, with pages of ``Tuning.index_page_rows`` rows. The changes since
are appended from time to time. What a version of the table holds is in its commit, as JSON in ``userMetadata``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.sources.delta_versions import DeltaVersions
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.sources.protocol import Source, insertions
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.state_lib.collected import held_rows
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.commit import CommitFailedError, CommitProperties, write_deltalake
from relstate_dagster.state_lib.lake.log import DeltaLog, commit_info
from relstate_dagster.state_lib.lake.table import DeltaTable, TableNotFoundError
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint
from relstate_dagster.state_lib.lookup_keys import LookupKeys, rows_on_pages
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.tuning import tuning

_PAGE_ROWS_SETTING: Final = "parquet.page.row.count.limit"
#: Commits that may follow the one that tells what the table holds.
_CHANGING_NOTHING: Final = frozenset({"VACUUM START", "VACUUM END"})


@dataclass(frozen=True, slots=True)
class IndexContents:
    """Contents of an index at a version.

    Parameters
    ----------
    table_uuid, version, schema, fingerprint : the source's table, its commit, and its columns at that time.
    columns : those of the source that the index has, its own first.
    rows, appended : rows that it was built with (those marked as deleted are counted), and rows of changes since.
    """

    table_uuid: str
    version: int
    schema: str
    columns: tuple[str, ...]
    rows: int = 0
    appended: int = 0
    fingerprint: str = ""

    @property
    def pin(self) -> Pin:
        """The source as the index has it."""
        return Pin(self.version, self.table_uuid, self.schema, fingerprint=self.fingerprint)

    def serves(self, until: Pin, columns: Iterable[str]) -> bool:
        """Whether index and later changes give rows of some columns as of a pin."""
        is_same_table = (self.table_uuid, self.schema) == (until.table_uuid, until.schema_json)
        return (
            is_same_table and until.first_files is None and self.version <= until.version and set(columns) <= set(self.columns)
        )

    def to_json(self) -> str:
        """Text for a commit's ``userMetadata``."""
        return json.dumps({"relstate_index": 1, **asdict(self)})

    @classmethod
    def from_json(cls, text: object) -> IndexContents | None:
        """Contents from the text of :meth:`to_json`; ``None`` of others."""
        try:
            found = json.loads(str(text))
        except ValueError:
            return None
        if not isinstance(found, dict) or found.pop("relstate_index", None) != 1:
            return None
        return cls(**{**found, "columns": tuple(found["columns"])})


class SourceIndex:
    """The index of a source by one of its columns.

    Parameters
    ----------
    path : where its Delta table lies, or will.
    column : of the source.
    """

    def __init__(self, path: str, column: str) -> None:
        self.path = Address.parse(path).spark
        self.column = column
        self._files: SnapshotFiles | None = None

    @property
    def contents(self) -> IndexContents | None:
        """Contents of the newest version, read once; ``None`` without an index."""
        return None if self._newest is None else self._newest[1]

    @cached_property
    def _newest(self) -> tuple[DeltaTable, IndexContents] | None:
        return _newest_of(self.path)

    @property
    def _there(self) -> tuple[DeltaTable, IndexContents]:
        if self._newest is None:
            raise SourceError(f"there is no index at {self.path}")
        return self._newest

    def _written(self) -> None:
        self._newest, self._files = _newest_of(self.path), None

    def rows_read(self, lookup_keys: LookupKeys) -> float:
        """About how many rows are read to find those with some values of the column."""
        return self.files.rows_read(replace(lookup_keys, column=_stored(0)))

    def read(self, spark: SparkSession, lookup_keys: LookupKeys) -> DataFrame:
        """The rows with some values of the column, and maybe others; no Spark job.

        Returns
        -------
        The columns that :attr:`contents` names, and ``_weight``, unmerged: a row that has changed since is there with −1, too.
        """
        rows = self.files.read(spark, replace(lookup_keys, column=_stored(0)))
        named = [f"{_stored(n)} AS {quoted(name)}" for n, name in enumerate(self._there[1].columns)]
        return rows.selectExpr(*named, WEIGHT)

    @property
    def files(self) -> SnapshotFiles:
        """The files of what :attr:`contents` tells."""
        if self._files is None:
            found = DeltaVersions(f"the index by {self.column}", self.path).files_at(self._there[0].version())
            self._files = replace(found, page_rows=tuning().index_page_rows)
        return self._files

    # Writing. Each commit holds a whole version of the source, so a kill leaves the version before.

    def build(self, spark: SparkSession, source: Source, pin: Pin, columns: Iterable[str]) -> None:
        """Write the rows of the source as of a pin, replacing earlier ones.

        Parameters
        ----------
        spark : a session of its own: the size of pages is set in it.
        columns : of the source, besides the index's own.
        """
        spark.conf.set(_PAGE_ROWS_SETTING, str(tuning().index_page_rows))
        wanted = (self.column, *sorted(set(columns) - {self.column}))
        size, total = source.totals(pin)
        rows = _as_stored(insertions(source.snapshot(spark, pin)), wanted)
        count = rows.count() if total is None else total
        contents = IndexContents(pin.table_uuid, pin.version, pin.schema_json, wanted, count, 0, pin.fingerprint)
        by_range = rows.repartitionByRange(1 + size // tuning().index_file_bytes, _stored(0))
        self._write(by_range, contents, mode="overwrite", overwriteSchema="true")

    def append(self, changes: DataFrame | None, until: Pin, most_bytes: int) -> None:
        """Bring the index up to a pin, by the change set since its version.

        Parameters
        ----------
        most_bytes : in memory, of changes that the driver writes.
        """
        table, before = self._there
        after = replace(before, version=until.version, fingerprint=until.fingerprint)
        if changes is None:
            self._commit(table, pa.schema(table.schema().to_arrow()).empty_table(), after)
            return
        narrow = _as_stored(changes, before.columns)
        found = held_rows(narrow, most_bytes)
        if found is not None:
            self._commit(table, found.rows, replace(after, appended=before.appended + found.rows.num_rows))
            return
        held = local_checkpoint(narrow)
        self._write(held, replace(after, appended=before.appended + held.count()), mode="append")

    def _commit(self, table: DeltaTable, rows: pa.Table, contents: IndexContents) -> None:
        # Where another run was faster, the index is at the version of that one.
        with suppress(CommitFailedError):
            write_deltalake(table, rows.sort_by(_stored(0)), mode="append", commit_properties=_telling(contents))
        self._written()

    def merge_small_files(self) -> None:
        """Put the files of appended changes into few, where there are many."""
        table, contents = self._there
        if sum(file.bytes < tuning().index_small_bytes for file in self.files.files) <= tuning().index_files:
            return
        with suppress(CommitFailedError):
            table.optimize.compact(target_size=tuning().index_small_bytes, commit_properties=_telling(contents))
        self._written()

    def _write(self, rows: DataFrame, contents: IndexContents, *, mode: str, **options: str) -> None:
        writer = rows.sortWithinPartitions(_stored(0)).write.format("delta").mode(mode)
        writer.options(**options, userMetadata=contents.to_json()).save(self.path)
        self._written()


def rows_read_of_index(rows: int, values: int) -> float:
    """About how many rows a lookup reads in an index, by rows and values."""
    return rows_on_pages(rows, tuning().index_page_rows, values)


def _newest_of(path: str) -> tuple[DeltaTable, IndexContents] | None:
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        return None
    log = DeltaLog(path)
    for version in range(table.version(), -1, -1):
        commit = commit_info(log.commit(version))
        contents = IndexContents.from_json(commit.get("userMetadata"))
        if contents is not None:
            return table, contents
        if commit.get("operation") not in _CHANGING_NOTHING:
            return None
    return None


def _stored(place: int) -> str:
    """Name of a column in the index table.

    Delta may refuse the source's names.
    """
    return f"c{place}"


def _as_stored(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    return rows.selectExpr(*(f"{quoted(name)} AS {_stored(n)}" for n, name in enumerate(columns)), WEIGHT)


def _telling(contents: IndexContents) -> CommitProperties:
    return CommitProperties(custom_metadata={"userMetadata": contents.to_json()}, max_commit_retries=0)
