"""The catalog's Delta table, one row an entry; its commits are the lock.

A commit names the version it was made from. If another writer has committed since, it fails instead of being rebased by
Delta. This compare and swap needs the one guarantee that every Delta log store gives: a version is written once. What was
changed is then put on top of what the other one has written (:func:`.jobs.catalog.state.rebased`), or refused where both
have changed the same entry.

The table is partitioned by ``level``, as a log-structured merge tree is. A commit writes the rows that it changes, and the
rows of all lower levels, to the lowest level that has room. So a commit's cost follows what it changes, and a reader finds
a handful of files. A row is newer than one of the same kind and name in a higher level. An empty payload says that there is
no such entry any more.

It is written by ``deltalake`` and not by Spark: a commit takes milliseconds instead of a Spark job, and ``status``,
sensors and loading Dagster definitions need no JVM.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from relstate_dagster.jobs.catalog.plans import PlanStore
from relstate_dagster.jobs.catalog.rows import WAREHOUSE, Home, Payload, RowKey, changed_rows, entry_in, entry_of, state_of
from relstate_dagster.jobs.catalog.state import CatalogState, ConcurrentCatalogChange, rebased
from relstate_dagster.state_lib.constants import FORMAT_VERSION
from relstate_dagster.state_lib.errors import SourceError, WarehouseError, first_line
from relstate_dagster.state_lib.lake.commit import CommitFailedError, CommitProperties, write_deltalake
from relstate_dagster.state_lib.lake.log import DeltaLog, files_of
from relstate_dagster.state_lib.lake.parquet import opened_parquet
from relstate_dagster.state_lib.lake.statistics import DataFile, data_files
from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable, OpenedTable, TableNotFoundError

_SCHEMA: Final = pa.schema([("level", pa.int32()), ("kind", pa.string()), ("name", pa.string()), ("payload", pa.string())])
#: Rows that the levels up to the first have room for, and how many times as many those up to the next.
_FIRST_LEVEL_ROWS: Final = 32
_LEVEL_GROWTH: Final = 8
#: To open a table is to read its newest checkpoint and every commit since: 0.2 ms each.
_CHECKPOINT_EVERY: Final = 10
#: How often a commit is tried that other writers are faster than, after a short pause each time.
_TRIES: Final = 100
_PAUSE_SECONDS: Final = 0.05

#: What to do about a damaged catalog, as part of a message.
REPAIR: Final = "relstate repair goes back to its last version that can be read"

_Rows = dict[RowKey, Payload | None]


class CatalogStore:
    """Reads and changes the catalog of a warehouse. Threads may share one.

    Parameters
    ----------
    root : the folder or address of the warehouse.
    """

    def __init__(self, root: str) -> None:
        self.path = f"{root}/_relstate/catalog"
        self.plans = PlanStore(f"{root}/_relstate/plans")
        self._home = Home(self.plans, str(root))
        self._lock = threading.RLock()
        self._table = OpenedTable(self.path)
        self._state = CatalogState()
        #: Rows of files that were read, by path: a file never changes.
        self._files: dict[str, _Rows] = {}
        #: Entries by row, with the payload that each was made from.
        self._entries: dict[RowKey, tuple[Payload, Any]] = {}

    def read(self) -> CatalogState:
        """The newest state; an empty one where the warehouse is new.

        Raises
        ------
        WarehouseError : the catalog cannot be read, or was written by another version of this package.
        """
        with self._lock:
            try:
                table = self._table.latest()
            except TableNotFoundError:
                return CatalogState()
            except (DeltaError, OSError) as error:
                self._table = OpenedTable(self.path)
                raise WarehouseError(f"the catalog at {self.path} cannot be opened: {first_line(error)}; {REPAIR}") from error
            if table.version() != self._state.version or not self._is_known(table):
                self._state = self._read(table)
            _check_format(self._state.format_version)
            return self._state

    def write(self, state: CatalogState) -> CatalogState:
        """Write a state on top of its version; returns it with the new version.

        Raises
        ------
        ConcurrentCatalogChange : another writer was faster. Nothing was written.
        """
        with self._lock:
            base = self._at(state.version)
            return self._swap(base, state)

    def commit(
        self, base: CatalogState, state: CatalogState, then: Callable[[CatalogState], CatalogState] = lambda s: s
    ) -> CatalogState:
        """Write the change between two states on top of the newest one.

        Parameters
        ----------
        base, state : the state that was read, and what was made of it.
        then : the last step, made on top of the newest state, as often as it takes. It may raise.

        Raises
        ------
        ConcurrentCatalogChange : others have changed the same entries. Nothing was written.
        """
        return self.update(lambda newest: then(rebased(base, state, newest)))

    def update(self, change: Callable[[CatalogState], CatalogState]) -> CatalogState:
        """Make one step on top of the newest state, retried until it succeeds.

        Nothing is written if the step changes nothing.
        """
        with self._lock:
            for _ in range(_TRIES):
                newest = self.read()
                try:
                    return self._swap(newest, change(newest))
                except _AnotherWasFaster:
                    time.sleep(_PAUSE_SECONDS * random.random())  # noqa: S311 - apart from the other writer
        raise ConcurrentCatalogChange(
            "other runs change the catalog of this warehouse all the time; nothing was written, run again"
        )

    def at(self, version: int) -> CatalogState:
        """The catalog state at a version of its table.

        Raises
        ------
        WarehouseError : it cannot be read.
        """
        with self._lock:
            try:
                return self._read(self._table.at(version))
            except DeltaError as error:
                raise WarehouseError(f"version {version} of {self.path} cannot be opened: {first_line(error)}") from error

    # -- reading --------------------------------------------------------------------------------------------------

    def _is_known(self, table: DeltaTable) -> bool:
        return all(file.path in self._files for file in data_files(table))

    def _at(self, version: int) -> CatalogState:
        if version == self._state.version:
            return self._state
        if version < 0:
            return CatalogState()
        self._state = self._read(self._table.at(version))
        return self._state

    def _read(self, table: DeltaTable) -> CatalogState:
        files = data_files(table)
        rows = self._rows_of(files)
        about = rows.get(WAREHOUSE)
        if about is None:
            raise WarehouseError(f"the catalog at {self.path} is damaged: it has no row about the warehouse itself; {REPAIR}")
        _check_format(about["format_version"])
        self._check_newest(table.version(), about["version"])
        return self._state_of(table.version(), rows)

    def _rows_of(self, files: tuple[DataFile, ...]) -> _Rows:
        """The newest row of each entry; files that are not read yet are read."""
        self._files = {file.path: self._files[file.path] if file.path in self._files else self._rows_in(file) for file in files}
        rows: _Rows = {}
        for file in sorted(files, key=lambda f: -f.partition["level"]):
            rows.update(self._files[file.path])
        return rows

    def _rows_in(self, file: DataFile) -> _Rows:
        """Rows of a file, read in this thread.

        Arrow's pools have more threads than most files have rows.
        """
        if "level" not in file.partition:
            _check_format(FORMAT_VERSION - 1)
        try:
            with opened_parquet(f"{self.path}/{file.path}") as parquet:
                rows = parquet.read(columns=["kind", "name", "payload"], use_threads=False).to_pylist()
        except (SourceError, OSError, pa.ArrowException) as error:
            raise WarehouseError(
                f"the catalog at {self.path} is damaged: {file.path} cannot be read: {first_line(error)}; {REPAIR}"
            ) from error
        return {(r["kind"], r["name"]): None if r["payload"] is None else json.loads(r["payload"]) for r in rows}

    def _state_of(self, version: int, rows: Mapping[RowKey, Payload | None]) -> CatalogState:
        entries: dict[RowKey, tuple[Payload, Any]] = {}
        for key in sorted(rows):
            payload = rows[key]
            if payload is not None:
                known = self._entries.get(key)
                is_same = known is not None and (known[0] is payload or known[0] == payload)
                entries[key] = known if known is not None and is_same else (payload, entry_of(key, payload, self._home))
        self._entries = entries
        return state_of(version, {key: entry for key, (_, entry) in entries.items()})

    def _check_newest(self, newest: int, written_as: int) -> None:
        """Raise if the newest commit was not read.

        Readers of Delta pass over an empty log file.

        A disk that was full or a copy that was cut off leaves one. VACUUM and the like commit, and leave rows as they are.
        """
        log = DeltaLog(self.path)
        for version in range(written_as + 1, newest + 1):
            try:
                problem = "is not a run's commit" if any(files_of(log.commit(version))) else None
            except SourceError:
                problem = "holds nothing"
            if problem is not None:
                raise WarehouseError(
                    f"the catalog at {self.path} is damaged: version {version} in its log {problem}, the last one that a "
                    f"run wrote is {written_as}; {REPAIR}"
                )

    # -- writing --------------------------------------------------------------------------------------------------

    def _swap(self, base: CatalogState, state: CatalogState) -> CatalogState:
        """Write a state over its predecessor, the newest; or raise _AnotherWasFaster."""
        state = replace(state, version=base.version + 1)
        rows = changed_rows(base, state)
        if len(rows) == 1 and base.version >= 0 and _same_ids(base, state):
            return base
        for view in (*state.views.values(), *state.rebuilds.values()):
            if ("view", view.name) in rows or ("rebuild", view.name) in rows:
                self.plans.write(view.planned)
        try:
            if base.version < 0:
                self._create(rows)
            else:
                self._append(self._table.at(base.version), rows)
        except (CommitFailedError, DeltaError, OSError) as error:
            self._table = OpenedTable(self.path)
            if self._newest_version() == base.version:
                raise WarehouseError(f"the catalog at {self.path} cannot be written: {first_line(error)}") from error
            raise _AnotherWasFaster(
                f"another run changed the catalog of this warehouse since version {base.version}; nothing was written, "
                "run again"
            ) from error
        if state.version and state.version % _CHECKPOINT_EVERY == 0:
            self._table.at(state.version).create_checkpoint()
        self._remember(rows, state)
        return state

    def _newest_version(self) -> int:
        try:
            return self._table.latest().version()
        except TableNotFoundError:
            return -1

    def _remember(self, rows: _Rows, state: CatalogState) -> None:
        """Take what was written for read."""
        self._state = state
        for key, payload in rows.items():
            self._entries.pop(key, None)
            if payload is not None:
                self._entries[key] = payload, entry_in(state, key, payload)

    def _create(self, rows: _Rows) -> None:
        table = _table(rows, _level_of(len(rows)))
        write_deltalake(self.path, table, mode="error", partition_by=["level"], commit_properties=_ONCE)
        self._keep(self._table.latest(), 0, rows)

    def _append(self, table: DeltaTable, rows: _Rows) -> None:
        """Write rows to the lowest level with room for them and all rows below it."""
        files = sorted(data_files(table), key=lambda f: f.partition["level"])
        level = _level_of(len(rows))
        while True:
            merged = [file for file in files if file.partition["level"] <= level]
            if len(rows) + sum(file.rows for file in merged) <= _room(level):
                break
            level += 1
        written: _Rows = {}
        for file in reversed(merged):
            written.update(self._files[file.path])
        written.update(rows)
        if len(merged) == len(files):
            written = {key: payload for key, payload in written.items() if payload is not None}
        version = table.version() + 1
        write_deltalake(table, _table(written, level), mode="overwrite", predicate=f"level <= {level}", commit_properties=_ONCE)
        self._keep(table, version, written)

    def _keep(self, table: DeltaTable, version: int, written: _Rows) -> None:
        """Take rows that were written for read, unless another commit has followed."""
        after = [file.path for file in data_files(table)] if table.version() == version else []
        self._files = {path: self._files.get(path, written) for path in after}


class _AnotherWasFaster(ConcurrentCatalogChange):
    """The version that a commit was to make is there already."""


_ONCE: Final = CommitProperties(max_commit_retries=0)


def _room(level: int) -> int:
    """Rows that the levels up to one have room for."""
    return _FIRST_LEVEL_ROWS * int(_LEVEL_GROWTH**level)


def _level_of(rows: int) -> int:
    """The lowest level whose limit is at least this number of rows."""
    level = 0
    while _room(level) < rows:
        level += 1
    return level


def _same_ids(base: CatalogState, state: CatalogState) -> bool:
    return (base.next_table_id, base.next_epoch, base.format_version) == (
        state.next_table_id,
        state.next_epoch,
        state.format_version,
    )


def _table(rows: _Rows, level: int) -> pa.Table:
    payloads = [None if payload is None else json.dumps(payload, sort_keys=True) for payload in rows.values()]
    names = list(rows)
    columns = [[level] * len(names), [kind for kind, _ in names], [name for _, name in names], payloads]
    return pa.table(columns, schema=_SCHEMA)


def _check_format(written_by: int) -> None:
    if written_by < FORMAT_VERSION:
        raise WarehouseError(
            f"the warehouse was written by format version {written_by}, this package reads version {FORMAT_VERSION} only; "
            "make a new warehouse, and let it build its views from the same sources"
        )
    if written_by > FORMAT_VERSION:
        raise WarehouseError(
            f"the warehouse was written by format version {written_by}, this package reads version {FORMAT_VERSION}; "
            "upgrade relstate-dagster"
        )
