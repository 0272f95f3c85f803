"""The catalog's Delta table: read whole, written whole, and its commits are the lock.

A write names the version it was made from. If another writer has committed since, it fails instead of being rebased:
compare and swap, by the one guarantee that every Delta log store gives (a version is written once).

It is written by ``deltalake`` and not by Spark: a commit takes milliseconds instead of a Spark job, and ``status``,
sensors and loading Dagster definitions need no JVM.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa

from jobs.catalog.entries import CatalogState, from_rows, to_rows
from state_lib.constants import FORMAT_VERSION
from state_lib.errors import EpochError, SourceError, WarehouseError
from state_lib.lake.commit import CommitFailedError, CommitProperties, write_deltalake
from state_lib.lake.log import DeltaLog, files_of
from state_lib.lake.parquet import opened_parquet
from state_lib.lake.table import DeltaError, DeltaTable, TableNotFoundError

_SCHEMA = pa.schema([("kind", pa.string()), ("name", pa.string()), ("payload", pa.string())])
#: To open a table is to read its newest checkpoint and every commit since: 0.2 ms each.
_CHECKPOINT_EVERY = 10


class ConcurrentCatalogChange(EpochError):
    """Another run changed the catalog between a read and a write."""


def _read_rows(uri: str) -> list[dict[str, str]]:
    """The rows of one small Parquet file, read in this thread: Arrow's pools have more threads than it has rows."""
    with opened_parquet(uri) as parquet:
        rows: list[dict[str, str]] = parquet.read(use_threads=False).to_pylist()
    return rows


class CatalogStore:
    """Reads and replaces the catalog of a warehouse."""

    def __init__(self, path: str) -> None:
        self.path = path
        #: The table as it was read or written last: to open it again takes longer than to write it.
        self._opened: DeltaTable | None = None

    def read(self) -> CatalogState:
        """The newest state; an empty one where the warehouse is new.

        Raises
        ------
        WarehouseError : the catalog cannot be read, or was written by a newer version of this package.
        """
        try:
            table = DeltaTable(self.path)
        except TableNotFoundError:
            return CatalogState()
        except DeltaError as error:
            raise WarehouseError(f"the catalog at {self.path} cannot be opened: {error}") from error
        self._opened = table
        rows = [row for uri in table.file_uris() for row in _read_rows(uri)]
        kinds = [(r["kind"], r["name"], json.loads(r["payload"])) for r in rows]
        written_by = next((p["format_version"] for kind, _, p in kinds if kind == "warehouse"), None)
        if written_by is None:
            raise WarehouseError(f"the catalog at {self.path} is damaged: it has no row about the warehouse itself")
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
        self._check_newest(table.version(), next(p["version"] for kind, _, p in kinds if kind == "warehouse"))
        return from_rows(table.version(), kinds)

    def write(self, state: CatalogState) -> CatalogState:
        """Replace the catalog by a state made from the version it names; returns the state with its new version.

        Raises
        ------
        ConcurrentCatalogChange : another writer was faster. Nothing was written.
        """
        rows = to_rows(replace(state, version=state.version + 1))
        table = pa.table(
            {
                "kind": [kind for kind, _, _ in rows],
                "name": [name for _, name, _ in rows],
                "payload": [json.dumps(payload, sort_keys=True) for _, _, payload in rows],
            },
            schema=_SCHEMA,
        )
        once = CommitProperties(max_commit_retries=0)
        expected = state.version + 1
        try:
            if state.version < 0:
                write_deltalake(self.path, table, mode="error", commit_properties=once)
            else:
                base, self._opened = self._at(state.version), None
                write_deltalake(base, table, mode="overwrite", commit_properties=once)
                self._opened = base
        except (CommitFailedError, DeltaError) as error:
            raise ConcurrentCatalogChange(
                f"another run changed the catalog of this warehouse since version {state.version}; nothing was written, "
                "run again"
            ) from error
        if expected and expected % _CHECKPOINT_EVERY == 0:
            self._at(expected).create_checkpoint()
        return from_rows(expected, rows)

    def _check_newest(self, newest: int, written_as: int) -> None:
        """Raise where what was read is not what was written last: readers of Delta pass over an empty log file.

        A disk that was full or a copy that was cut off leaves one. VACUUM and the like commit, and leave rows as they are.
        """
        log = DeltaLog(self.path)
        for version in range(written_as + 1, newest + 1):
            try:
                is_damaged = any(files_of(log.commit(version)))
            except SourceError:
                is_damaged = True
            if is_damaged:
                raise WarehouseError(
                    f"the catalog at {self.path} is damaged: version {version} in its log holds nothing, what can be read is "
                    f"of version {written_as}; restore its folder from a backup, or delete the log files after version "
                    f"{written_as}: what is missing is then taken up again from the views' own tables"
                )

    def _at(self, version: int) -> DeltaTable:
        opened = self._opened
        return opened if opened is not None and opened.version() == version else DeltaTable(self.path, version=version)
