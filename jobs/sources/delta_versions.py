"""Versions of a Delta table: facts, files, and deleted rows, each read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.sources.commit_order import AppendedFile
from relstate_dagster.jobs.sources.deleted_rows import DeletedRows, deleted_rows
from relstate_dagster.jobs.sources.file_layout import FileLayout
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import Address, full_path
from relstate_dagster.state_lib.lake.log import DeltaLog, TableFacts, table_facts
from relstate_dagster.state_lib.lake.parquet import footer_rows
from relstate_dagster.state_lib.lake.statistics import DataFile, data_files
from relstate_dagster.state_lib.lake.table import OpenedTable
from relstate_dagster.state_lib.lazy_frame import lazy

#: Most files whose paths are handed to Spark, on this machine and in an object store. Spark asks for the size of each, which
#: is a request there, and cannot skip files by the statistics of Delta's log.
_MOST_FILES: Final = 100
_MOST_REMOTE_FILES: Final = 16
REBUILD: Final = "rebuild the views that read it with --full-refresh"


class DeltaVersions:
    """The versions of a table.

    Parameters
    ----------
    name : of the source, for messages.
    path : where the Delta table lies.
    """

    def __init__(self, name: str, path: str) -> None:
        self.path = Address.parse(path).spark
        self.where = f"source {name} ({self.path})"
        self.log = DeltaLog(path)
        self.table = OpenedTable(path)
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

    def checked_fingerprint(self, version: int) -> str:
        """Fingerprint of a commit that has just been read; empty without one."""
        fingerprint = self.log.fingerprint(version) or ""
        self._checked.add((version, fingerprint))
        return fingerprint

    def is_there(self, pin: Pin) -> bool:
        """Whether the log has the pinned commit, and no other of this version."""
        found = self.log.fingerprint(pin.version)
        if found is None:
            return False
        if pin.fingerprint and found == pin.fingerprint:
            self._checked.add((pin.version, found))
        return found == pin.fingerprint if pin.fingerprint else self.facts().table_uuid == pin.table_uuid

    def check_is_there(self, pin: Pin) -> None:
        """Raise if another commit has the version of a pin.

        A commit that was cleaned up cannot be compared.
        """
        if not pin.fingerprint or (pin.version, pin.fingerprint) in self._checked:
            return
        if self.log.fingerprint(pin.version) not in (None, pin.fingerprint):
            raise SourceError(
                f"{self.where}: version {pin.version} is another commit than it was: the table was "
                f"replaced, or put back from a copy and then changed; {REBUILD}"
            )
        self._checked.add((pin.version, pin.fingerprint))

    def data_files(self, version: int) -> tuple[DataFile, ...]:
        """Data files of a version, in the order of their paths."""
        return data_files(self.table.at(version))

    def counted_files(self, version: int) -> list[AppendedFile]:
        """Data files of a version with their row counts, in the order of their paths."""
        return self.counted([AppendedFile(file.path, file.rows) for file in self.data_files(version)])

    def counted(self, files: Sequence[AppendedFile]) -> list[AppendedFile]:
        """Files with their row counts, from their footers where the log does not have them."""
        read = iter(footer_rows([full_path(self.path, file.path) for file in files if file.rows < 0]))
        return [file._replace(rows=next(read)) if file.rows < 0 else file for file in files]

    def deleted(self, version: int) -> DeletedRows | None:
        """As :func:`.jobs.sources.deleted_rows.deleted_rows` of a version, read once."""
        if version not in self._deleted:
            self._deleted[version] = deleted_rows(self.table.at(version))
        return self._deleted[version]

    def files(self, pin: Pin) -> SnapshotFiles:
        """The files of the table as of a pin, listed once."""
        found = self.files_at(pin.version)
        return found if pin.first_files is None else found.some(0, pin.first_files)

    def files_at(self, version: int) -> SnapshotFiles:
        """The files of the table at a version, from its log."""
        if version not in self._files:
            self._files[version] = self._listed(version)
        return self._files[version]

    def rows(self, spark: SparkSession, version: int) -> DataFrame:
        """All rows at a version.

        By Spark's reader of Parquet, where some files hold them plainly. Delta's runs jobs over the log for each version of a
        table: two seconds of the two and a half that it took to verify a view of ten rows.
        """
        files, most = self.files_at(version), _MOST_FILES if Address.parse(self.path).is_local else _MOST_REMOTE_FILES
        if files.are_rows and not files.deleted.places and len(files.files) <= most:
            return files.read(spark, None)
        return self.rows_by_delta(spark, version)

    def rows_by_delta(self, spark: SparkSession, version: int) -> DataFrame:
        """As :meth:`rows`, by Delta's own reader."""
        return lazy(spark.read.format("delta").option("versionAsOf", version).load(self.path))

    def _listed(self, version: int) -> SnapshotFiles:
        layout = self.layout(version)
        if layout is None:
            return SnapshotFiles(None, self.data_files(version))
        files = data_files(self.table.at(version), {stored: name for name, stored in layout.physical.items()}, layout.padded)
        deleted = self.deleted(version)
        if deleted is None or not all(layout.has_partition_values(file.path, file.partition) for file in files):
            return SnapshotFiles(None, files)
        return SnapshotFiles(layout, files, deleted)

    def layout(self, version: int) -> FileLayout | None:
        """Layout of the table's files; ``None`` if only Delta can read them."""
        return FileLayout.of(self.table.path, self.facts(version))
