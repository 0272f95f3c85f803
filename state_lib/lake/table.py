"""One Delta table, opened once, and common parts of delta-rs' commits.

To open a Delta table is to read its newest checkpoint and every commit since, 5 to 10 ms, and an epoch asks the same few
tables for many things. What is open is brought up to date instead, which takes 1 ms.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Final, TypeAlias

import deltalake
import pyarrow as pa
from deltalake import ColumnProperties, Schema, WriterProperties
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.table import TableMerger, TableOptimizer

from relstate_dagster.state_lib.lake.address import Address, filesystem_of, full_path

__all__ = ["DeltaError", "DeltaTable", "OpenedTable", "TableNotFoundError", "exact_statistics"]

#: Types whose bounds delta-rs logs right (those of timestamps are cut to milliseconds, which readers allow for).
_EXACT: Final = frozenset({"byte", "short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz"})
_FLOATING: Final = frozenset({"float", "double"})
#: delta-rs takes bounds of decimals through doubles, which hold so many digits.
EXACT_DIGITS: Final = 15
#: Characters of a text in a bound, as Spark cuts them. Uncut, texts of 10 MB made lines of the log that Spark cannot read.
_BOUND_CHARACTERS: Final = 32


def exact_statistics(schema: Schema, unbounded: Collection[str] = (), **compression: Any) -> WriterProperties:
    """Properties of a write that leaves out the statistics that would be wrong.

    Parameters
    ----------
    unbounded : columns that get no bounds.

    delta-rs takes the statistics of the log from the footers of the files. Of long decimals it makes doubles or 64 bit
    integers, of floating-point numbers the footers leave out NaN, which to Spark is the greatest. Every reader of the table
    would skip files, row groups and pages for them that have the rows. Fields of structs cannot be chosen one by one.
    """
    bounded = [f.name for f in schema.fields if _is_exact(f.type) and f.name not in unbounded]
    columns = {name: ColumnProperties(statistics_enabled="PAGE") for name in bounded}
    for field in schema.fields:
        if _name(field.type) in _FLOATING:
            # By a dictionary Spark skips a row group with -0.0 where 0.0 is asked for, though it takes them for equal.
            columns[field.name] = ColumnProperties(statistics_enabled="NONE", dictionary_enabled=False)
    return WriterProperties(
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties=columns,
        statistics_truncate_length=_BOUND_CHARACTERS,
        **(compression or {"compression": "SNAPPY"}),
    )


def _is_exact(data_type: Any) -> bool:
    name = _name(data_type)
    if name.startswith("decimal("):
        return int(name.removeprefix("decimal(").split(",")[0]) <= EXACT_DIGITS
    return name in _EXACT


def _name(data_type: Any) -> str:
    """The name of a type; empty where it is nested."""
    return str(getattr(data_type, "type", ""))


class _Optimizer(TableOptimizer):
    def compact(self, *args: Any, **options: Any) -> dict[str, Any]:
        schema = self.table.schema()
        # As delta-rs compresses what it compacts by itself.
        properties = exact_statistics(schema, compression="ZSTD", compression_level=4)
        return super().compact(*args, **{"writer_properties": properties, **options})


class DeltaTable(deltalake.DeltaTable):
    """A Delta table of delta-rs, which writes statistics that readers can trust."""

    def __init__(self, table_uri: str | os.PathLike[str], *args: Any, **options: Any) -> None:
        self._address = Address.parse(table_uri)
        super().__init__(self._address.delta_rs, *args, **{"storage_options": self._address.options, **options})

    @staticmethod
    def is_deltatable(table_uri: str | os.PathLike[str], storage_options: dict[str, str] | None = None) -> bool:
        """Whether there is a Delta table; a damaged one is."""
        address = Address.parse(table_uri)
        return deltalake.DeltaTable.is_deltatable(address.delta_rs, storage_options or address.options)

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        """Return what the log says of each data file, as a table of pyarrow.

        ``pa.table`` would first ask pandas whether it is a frame of its own, and import it: 0.15 s in each fresh process.
        """
        actions: pa.Table = pa.RecordBatchReader.from_stream(super().get_add_actions(flatten=flatten)).read_all()
        return actions

    def file_uris(self, *_args: Any, **_options: Any) -> list[str]:
        """Paths and addresses of the data files, not escaped.

        delta-rs escapes the table's part of them.
        """
        paths = self.get_add_actions()["path"].to_pylist()
        return [full_path(self._address.spark, path) for path in paths]

    def merge(self, *args: Any, **options: Any) -> TableMerger:
        """As delta-rs merges."""
        return super().merge(*args, **{"writer_properties": exact_statistics(self.schema()), **options})

    @property
    def optimize(self) -> TableOptimizer:
        """As delta-rs optimizes."""
        return _Optimizer(self)


#: Size and time of a commit's file; ``None`` for both where the log does not have it (any more).
_CommitFile: TypeAlias = tuple[int | None, int | None]


def _commit_file(path: str, version: int) -> _CommitFile:
    filesystem, inside = filesystem_of(path)
    found = filesystem.get_file_info(f"{inside}/_delta_log/{version:020d}.json")
    return found.size, found.mtime_ns


class OpenedTable:
    """A Delta table by its path, opened once.

    One that is deleted and made again under the path is opened again.

    What :meth:`latest` gives is brought up to date by the next call, and by a commit that is made on it; so does :meth:`at`
    where it is the same version. Threads may share an object only to ask for versions.
    """

    def __init__(self, path: str) -> None:
        self.path = Address.parse(path).spark
        self._latest: DeltaTable | None = None
        self._versions: dict[int, DeltaTable] = {}
        #: A version that was opened and the file of its commit: another table's is another file.
        self._opened_at: tuple[int, _CommitFile] | None = None

    def latest(self) -> DeltaTable:
        """The newest version.

        Raises
        ------
        TableNotFoundError
            There is no table (yet).
        """
        self._forget_another()
        if self._latest is None:
            self._latest = DeltaTable(self.path)
            self._remember(self._latest)
        else:
            self._latest.update_incremental()
        return self._latest

    def opened(self) -> DeltaTable:
        """The newest version at the last look.

        In an object store each look costs requests.
        """
        return self.latest() if self._latest is None else self._latest

    def at(self, version: int | None) -> DeltaTable:
        """A version; the newest without one."""
        if version is None:
            return self.latest()
        self._forget_another()
        if self._latest is not None and self._latest.version() < version:
            self._latest.update_incremental()
        if self._latest is not None and self._latest.version() == version:
            return self._latest
        opened = self._versions.get(version)
        if opened is None or opened.version() != version:  # a commit that was made on it has moved it
            opened = self._versions[version] = DeltaTable(self.path, version=version)
            if self._opened_at is None:
                self._remember(opened)
        return opened

    def _remember(self, table: DeltaTable) -> None:
        version = table.version()
        self._opened_at = version, _commit_file(self.path, version)

    def _forget_another(self) -> None:
        """Forget the opened table if it was recreated since.

        0.05 ms where it lies on this machine.
        """
        if self._opened_at is not None and _commit_file(self.path, self._opened_at[0]) != self._opened_at[1]:
            self._latest, self._versions, self._opened_at = None, {}, None

    def transaction_version(self, app_id: str) -> int | None:
        """Newest ``txnVersion`` of an application at the last look, or ``None``."""
        try:
            version = self.opened().transaction_version(app_id)
        except TableNotFoundError:
            return None
        return None if version is None else int(version)

    def total_bytes(self, version: int | None = None) -> int:
        """Bytes of a version's data files; by default of the last look's newest."""
        return self.totals(version)[0]

    def totals(self, version: int | None = None) -> tuple[int, int | None]:
        """Bytes of the data files of a version, and rows if logged."""
        table = self.opened() if version is None else self.at(version)
        actions = table.get_add_actions(flatten=True)
        rows = actions.column("num_records").to_pylist()
        return sum(actions.column("size_bytes").to_pylist()), None if None in rows else sum(rows)
