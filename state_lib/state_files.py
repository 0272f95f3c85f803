"""Parquet files of state tables at a version, from the log alone.

Spark plans a Delta table by running jobs over its log, once a snapshot and once a scan. State is planned for every table of
every view in every epoch. So delta-rs lists its files here from the log (milliseconds), and Spark reads them as plain
Parquet. A state table has no deletion vectors and no column mapping, so its files are its rows.
"""

from __future__ import annotations

from relstate_dagster.state_lib.constants import TABLE_ID, VNODE
from relstate_dagster.state_lib.lake.statistics import DataFile, data_files
from relstate_dagster.state_lib.lake.table import OpenedTable
from relstate_dagster.state_lib.lookup_keys import LookupKeys


class StateFiles:
    """The files of one Delta state table, a version's list kept once it was read."""

    def __init__(self, path: str) -> None:
        self.table = OpenedTable(path)
        self._by_version: dict[int, tuple[DataFile, ...]] = {}

    @property
    def path(self) -> str:
        """Path of the table."""
        return self.table.path

    def at(self, version: int | None) -> tuple[DataFile, ...]:
        """All files of a version (the newest without one)."""
        if version is not None and version in self._by_version:
            return self._by_version[version]
        table = self.table.at(version)
        found = self._by_version.get(table.version())
        if found is None:
            found = tuple(sorted(data_files(table), key=lambda f: (*partition_of(f), f.path)))
            self._by_version[table.version()] = found
        return found

    def of(
        self, version: int | None, table_ids: frozenset[int], lookup_keys: LookupKeys | None = None, slot: str | None = None
    ) -> tuple[DataFile, ...]:
        """Files of state tables at a version, that can have some values."""
        found = tuple(f for f in self.at(version) if f.partition[TABLE_ID] in table_ids)
        if lookup_keys is None or slot is None:
            return found
        return tuple(f for f in found if lookup_keys.may_be_in(f.lower, f.upper, slot))


def partition_of(file: DataFile) -> tuple[int, int]:
    """The table id and vnode whose rows a file of a state table holds."""
    return file.partition[TABLE_ID], file.partition[VNODE]
