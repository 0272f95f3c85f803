"""Files of a folder that is a source: present, read, and new ones.

No Spark.

What was read is in a ledger, a Delta table beside the rows: a line for each file, appended once the rows of the file are
committed. Two runs that find the same files are serialized by the transactions of both tables (:mod:`.jobs.run.ingest`).

::

    <source>/            the rows: a Delta table
    <source>/_files      the ledger: a Delta table (path, size, modified_at, batch)
    <source>/_malformed  records that could not be read: a Delta table (file, record, text, reason, batch)
    <source>/_batches    what is being read
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from relstate_dagster.jobs.declare.model import FileFolder
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import Address
from relstate_dagster.state_lib.lake.files import files_below
from relstate_dagster.state_lib.lake.rows import rows_at
from relstate_dagster.state_lib.lake.table import OpenedTable, TableNotFoundError
from relstate_dagster.state_lib.tuning import tuning

#: A file: its path below the folder, its size in bytes, and when it was modified.
FILE_COLUMNS: Final = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified_at", pa.timestamp("us", "UTC"))])
#: How files are read: in the order in which they came.
OLDEST_FIRST: Final = [("modified_at", "ascending"), ("path", "ascending")]
#: A line of the ledger.
LEDGER_COLUMNS: Final = T.StructType(
    [
        T.StructField("path", T.StringType()),
        T.StructField("size", T.LongType()),
        T.StructField("modified_at", T.TimestampType()),
        T.StructField("batch", T.LongType()),
    ]
)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The files of a folder that were not read yet, oldest first, with columns ``FILE_COLUMNS``.

    ``size`` of those that are empty is not known to be their last one: they are passed over until there is something in them.
    """

    files: pa.Table

    def __bool__(self) -> bool:
        return bool(self.files.num_rows)

    @property
    def identity(self) -> str:
        """A short name for a set of files, equal for equal sets."""
        paths = self.files["path"].to_pylist()
        of_all = "\n".join([*paths, str(pc.sum(self.files["size"])), str(pc.max(self.files["modified_at"]))])
        digest = hashlib.sha256(of_all.encode()).hexdigest()[:8]
        return f"{len(paths):,} new file(s), the last of them {paths[-1]} ({digest})"

    def batches(self) -> list[pa.Table]:
        """The files divided into what is read and committed at once."""
        found, begin, held = list[pa.Table](), 0, 0
        for position, size in enumerate(self.files["size"].to_pylist()):
            count = position - begin
            if count and (count >= tuning().folder_batch_files or held + size > tuning().folder_batch_bytes):
                found.append(self.files.slice(begin, count))
                begin, held = position, 0
            held += size
        return [*found, self.files.slice(begin)] if self else []


class FolderFiles:
    """A folder of files, and the ledger of those that were read.

    Parameters
    ----------
    name : of the source.
    folder : as declared.
    table : where the rows lie.
    """

    def __init__(self, name: str, folder: FileFolder, table: str) -> None:
        self.name = name
        self.folder = folder
        self.table = table
        self.ledger = OpenedTable(f"{table}/_files")
        self.malformed_path = f"{table}/_malformed"

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine's disks."""
        return Address.parse(self.folder.location).is_local

    def batch_path(self, batch: str) -> str:
        """Path of a batch's notes until it is in the ledger."""
        return f"{self.table}/_batches/{batch}"

    def new(self) -> NewFiles:
        """Look which files are new.

        Raises
        ------
        SourceError : there is no such folder, or a file that was read is another one now.
        """
        there, read = listing(self.name, self.folder), self.read()
        both = there.join(read, keys="path", join_type="left outer", right_suffix=" read")
        is_new = pc.is_null(both["size read"])
        is_other = pc.or_kleene(
            pc.not_equal(both["size"], both["size read"]), pc.not_equal(both["modified_at"], both["modified_at read"])
        )
        changed = both.filter(pc.fill_null(is_other, False))
        if changed.num_rows:
            first = changed.sort_by("path").slice(0, 1).to_pylist()[0]
            raise SourceError(
                f"source {self.name}: {changed.num_rows:,} file(s) in {self.folder.location} were changed after they had been "
                f"read, the first is {first['path']} ({_described(first, ' read')}, now {_described(first, '')}). A file is "
                "read once: put the old file back, or delete it (its rows stay), and write new rows to a new file. To read the "
                "folder from its first file on, drop the table and create it again"
            )
        new = both.filter(is_new).select(FILE_COLUMNS.names)
        with_colon = [path for path in new["path"].to_pylist() if ":" in path] if self.is_local else []
        if with_colon:
            raise SourceError(
                f"source {self.name}: {with_colon[0]} in {self.folder.location} has a colon in its name, and Spark cannot open "
                "such a file on a local disk; rename it"
            )
        return NewFiles(new.sort_by(OLDEST_FIRST))

    def read(self) -> pa.Table:
        """The files that were read, with columns ``FILE_COLUMNS``."""
        try:
            version = self.ledger.latest().version()
        except TableNotFoundError:
            return FILE_COLUMNS.empty_table()
        rows = rows_at(self.ledger.path, version, FILE_COLUMNS.names)
        if rows is None:
            raise SourceError(f"source {self.name}: {self.ledger.path}, the list of files that were read, cannot be read")
        return rows.cast(FILE_COLUMNS)


def listing(name: str, folder: FileFolder) -> pa.Table:
    """The files that are there, those in folders below included, with columns ``FILE_COLUMNS``.

    Names that begin with ``_`` or ``.`` are not of data, as to Spark. Empty files are left out.

    Parameters
    ----------
    name : of the source, for messages.

    Raises
    ------
    SourceError : there is no such folder.
    """
    try:
        found = files_below(folder.location)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceError(
            f"source {name}: there is no folder {folder.location}; make it, or declare another LOCATION"
        ) from error
    data = [file for file in found if file.size and not any(map(_is_hidden, file.path.split("/")))]
    columns = [
        pa.array([file.path for file in data], pa.string()),
        pa.array([file.size for file in data], pa.int64()),
        pa.array([file.modified_us for file in data], pa.timestamp("us", "UTC")),
    ]
    return pa.table(columns, schema=FILE_COLUMNS)


def full_paths(folder: FileFolder, paths: Sequence[str]) -> list[str]:
    """Full paths of a folder's files, for Spark."""
    return [f"{folder.location}/{path}" for path in paths]


def _is_hidden(name: str) -> bool:
    """As Spark's own lists of files have it."""
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def _described(file: dict[str, object], suffix: str) -> str:
    modified = file[f"modified_at{suffix}"]
    assert isinstance(modified, datetime)
    return f"{file[f'size{suffix}']:,} bytes of {modified:%Y-%m-%d %H:%M:%S}"
