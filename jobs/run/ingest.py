"""Ingestion of new files of folders into tables, each file once, before an epoch.

A batch of files becomes one commit of the source's table, under the next transaction of one application. Of two runs that
read the same files one commits, and the other sees that and continues from there. In this order:

1. The files of the batch, and records that could not be read, are written to a folder of the batch's own.
2. The rows are committed, and the commit names the batch. From here on its files count as read.
3. Malformed records are appended to their table, then the files to the ledger, by the same transaction number; the batch's
   folder is deleted. A run that finds 2 without 3 does this first.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.entries import SourceEntry
from relstate_dagster.jobs.engine import failpoints
from relstate_dagster.jobs.engine.spark_connect import new_session
from relstate_dagster.jobs.engine.workloads import Workload, cores, session_for
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.jobs.sources.file_records import MALFORMED_COLUMNS, FileRecords, partition_names
from relstate_dagster.jobs.sources.folder_files import FILE_COLUMNS, LEDGER_COLUMNS, FolderFiles, full_paths
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.jobs.view_epoch.error_messages import ends_the_run, reason_of
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.state_lib.errors import EpochError, RelstateError, SourceError
from relstate_dagster.state_lib.lake.commit import append_rows, create_plain_table
from relstate_dagster.state_lib.lake.files import read_file, write_once
from relstate_dagster.state_lib.lake.folders import delete_folder
from relstate_dagster.state_lib.lake.log import DeltaLog, commit_info, rows_changed
from relstate_dagster.state_lib.lake.parquet import parquet_bytes, parquet_table
from relstate_dagster.state_lib.lake.table import OpenedTable

_log = logging.getLogger(__name__)

_APP: Final = "relstate-files"
#: How often a batch is begun where other runs are faster every time.
_ATTEMPTS: Final = 20
#: Where Spark does not say how many it has.
_FEW_CORES: Final = 4
#: The number of malformed records, in the metadata of a batch's list of files.
_MALFORMED: Final = b"malformed"


@dataclass(frozen=True, slots=True)
class Ingested:
    """Files and rows read of a folder, and records that are no rows.

    Those are at ``malformed_path``.
    """

    files: int
    rows: int
    malformed: int
    malformed_path: str


def ingest_all(
    spark: SparkSession,
    folders: Mapping[str, SourceEntry],
    sources: Mapping[str, Source],
    on_start: Callable[[str], None],
) -> tuple[dict[str, Ingested], dict[str, Exception]]:
    """Read the new files of some folders.

    Parameters
    ----------
    sources : the readers of their tables.
    on_start : called with what begins.

    Returns
    -------
    What was read, where there was something, and the errors of sources that cannot be read.
    """
    found, errors = dict[str, Ingested](), dict[str, Exception]()
    for name, entry in sorted(folders.items()):
        try:
            read = ingest(spark, entry, sources[name], on_start)
        except (RelstateError, OSError) as error:
            errors[name] = error
        else:
            if read.files:
                found[name] = read
    return found, errors


def ingest(spark: SparkSession, entry: SourceEntry, source: Source, on_start: Callable[[str], None] = _log.info) -> Ingested:
    """Read the files of a folder that were not read yet.

    Raises
    ------
    SourceError : there is no such folder; a file cannot be read, or was changed after it had been read. What was read before is
        committed and stays so.
    """
    assert entry.folder is not None
    return _Ingestion(spark, entry, FolderFiles(entry.name, entry.folder, entry.path), source, on_start).run()


class _Ingestion:
    def __init__(
        self,
        spark: SparkSession,
        entry: SourceEntry,
        files: FolderFiles,
        source: Source,
        on_start: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._entry = entry
        self._files = files
        self._source = source
        self._table, self._log = OpenedTable(entry.path), DeltaLog(entry.path)
        self._on_start = on_start
        self._rows = self._malformed = self._count = 0

    def run(self) -> Ingested:
        create_plain_table(self._files.ledger.path, LEDGER_COLUMNS, {"delta.appendOnly": "true"})
        for _ in range(_ATTEMPTS):
            self._finish()
            batches = self._files.new().batches()
            if all(self._commit(batch) for batch in batches):
                return Ingested(self._count, self._rows, self._malformed, self._files.malformed_path)
        raise EpochError(f"source {self._entry.name}: other runs read the same files all the time; nothing was lost, run again")

    # -- a batch ------------------------------------------------------------------------------------------------------

    def _commit(self, files: pa.Table) -> bool:
        """Read and commit a batch of files; false where another run was faster."""
        number, batch = self._committed() + 1, uuid.uuid4().hex
        self._on_start(f"reading {files.num_rows:,} new file(s) of {self._entry.name} in {self._files.folder.location}")
        try:
            self._write(files, number, batch)
        except (PySparkException, Py4JJavaError) as error:
            delete_folder(self._files.batch_path(batch))
            if "ConcurrentTransaction" in str(error) or "DELTA_CONCURRENT" in str(error):
                return False
            if ends_the_run(error) is not None:
                raise
            raise SourceError(
                f"source {self._entry.name}: files in {self._files.folder.location} cannot be read: {_reason(error)}; mend "
                "the file, or move it out of the folder; nothing of these files was read"
            ) from error
        failpoints.reached("after_files_are_read")
        committed, rows = self._named(number)
        self._enter(number, committed, rows)
        if committed != batch:
            delete_folder(self._files.batch_path(batch))
        return committed == batch

    def _write(self, files: pa.Table, number: int, batch: str) -> None:
        session = self._session()
        paths = files["path"].to_pylist()
        schema = struct_of(self._source.facts().schema_json)
        reader = FileRecords(session, self._files.folder, schema, partition_names(paths))
        records = reader.records(full_paths(self._files.folder, paths))
        # Many small files are opened once. To read large ones twice takes less than to hold their rows.
        is_held = sum(files["size"].to_pylist()) <= run_limits().compared_bytes
        if is_held:
            records.persist()
        try:
            malformed = 0
            damaged = reader.malformed_files(records)
            if damaged:
                unread = reader.malformed(full_paths(self._files.folder, damaged), number)
                unread.write.parquet(f"{self._files.batch_path(batch)}/malformed")
                malformed = session.read.parquet(f"{self._files.batch_path(batch)}/malformed").count()
            write_once(f"{self._files.batch_path(batch)}/files.parquet", _packed(files, malformed))
            failpoints.reached("before_files_are_read")
            self._append(reader.rows(records), self._entry.path, number, batch)
        finally:
            if is_held:
                records.unpersist()

    def _session(self) -> SparkSession:
        zone = str(self._spark.conf.get("spark.sql.session.timeZone"))
        session = session_for(self._spark, {"spark.sql.session.timeZone": zone}, Workload.FULL)
        if not self._files.is_local:
            # Files are looked up by their paths, each by a request: by tasks, of which Spark would make one for each file (on a
            # local disk the driver alone takes 2 s for 5,000 files, such tasks 30).
            session.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "32")
            tasks = 8 * (cores(self._spark) or _FEW_CORES)
            session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", str(tasks))
        # Whether a record is malformed must not depend on the columns that are asked for.
        session.conf.set("spark.sql.csv.parser.columnPruning.enabled", "false")
        return session

    @staticmethod
    def _append(rows: DataFrame, path: str, number: int, batch: str) -> None:
        writer = rows.write.format("delta").mode("append").option("txnAppId", _APP).option("txnVersion", number)
        writer.option("userMetadata", batch).save(path)

    # -- what follows from a commit -----------------------------------------------------------------------------------

    def _committed(self) -> int:
        """The number of the last batch whose rows were committed; 0 before the first."""
        return int(self._table.latest().transaction_version(_APP) or 0)

    def _finish(self) -> None:
        """Enter the last batch into the ledger, if its run died before that."""
        # In this order: what others commit meanwhile makes the second number greater.
        entered = self._entered()
        number = self._committed()
        if number < entered:
            raise SourceError(
                f"source {self._entry.name}: {self._entry.path} is older than its list of files that were read. It was "
                "restored from a copy: restore all of its folder, or drop the table and create it again"
            )
        if number > entered:
            self._enter(number, *self._named(number))

    def _entered(self) -> int:
        """The number of the last batch in the ledger; 0 before the first."""
        return int(self._files.ledger.latest().transaction_version(_APP) or 0)

    def _enter(self, number: int, batch: str, rows: int) -> None:
        """Enter a committed batch into the ledger, unless another run does so meanwhile."""
        try:
            self._append_to_ledger(number, batch, rows)
        except (FileNotFoundError, PySparkException):
            if number > self._entered():
                raise
        delete_folder(self._files.batch_path(batch))

    def _append_to_ledger(self, number: int, batch: str, rows: int) -> None:
        files, malformed = _unpacked(read_file(f"{self._files.batch_path(batch)}/files.parquet"))
        if malformed:
            self._add_malformed(number, batch)
            failpoints.reached("before_files_are_entered")
        lines = files.append_column("batch", pa.array([number] * files.num_rows, pa.int64()))
        if append_rows(self._files.ledger, lines, app_id=_APP, txn_version=number, metadata=batch) is not None:
            self._count += files.num_rows
            self._rows += rows
            self._malformed += malformed

    def _add_malformed(self, number: int, batch: str) -> None:
        create_plain_table(self._files.malformed_path, MALFORMED_COLUMNS, {"delta.appendOnly": "true"})
        found = new_session(self._spark).read.parquet(f"{self._files.batch_path(batch)}/malformed")
        self._append(found, self._files.malformed_path, number, batch)

    def _named(self, number: int) -> tuple[str, int]:
        """The batch whose rows were committed by a transaction, and the number of those rows.

        Raises
        ------
        SourceError : the commit is not in the log any more.
        """
        version = self._table.latest().version()
        while True:
            actions = self._log.commit(version)
            if any(_is_batch(action, number) for action in actions):
                return str(commit_info(actions).get("userMetadata")), rows_changed(actions)[0]
            version -= 1


def _reason(error: BaseException) -> str:
    """Spark's reason why a file cannot be read, with its cause."""
    stack = f"{error}\n{getattr(error, '_stackTrace', '')}"
    _, _, cause = stack.rpartition("Caused by: ")
    reasons = takewhile(lambda line: not line.startswith("at "), (line.strip() for line in cause.splitlines()))
    return f"{reason_of(error)} ({' '.join(reasons)})" if cause != stack else reason_of(error)


def _is_batch(action: Mapping[str, Any], number: int) -> bool:
    transaction = action.get("txn", {})
    return bool(transaction.get("appId") == _APP and transaction.get("version") == number)


def _packed(files: pa.Table, malformed: int) -> bytes:
    return parquet_bytes(files.replace_schema_metadata({_MALFORMED: str(malformed).encode()}))


def _unpacked(content: bytes) -> tuple[pa.Table, int]:
    files = parquet_table(content)
    return files.cast(FILE_COLUMNS), int((files.schema.metadata or {}).get(_MALFORMED, b"0"))
