"""One Delta table, opened once.

To open a Delta table is to read its newest checkpoint and every commit since, 5 to 10 ms, and an epoch asks the same few
tables for many things. What is open is brought up to date instead, which takes 1 ms.
"""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

__all__ = ["DeltaError", "DeltaTable", "OpenedTable", "TableNotFoundError"]


class OpenedTable:
    """A Delta table by its path, for the time of one run: a table that is deleted and made again is not noticed.

    What :meth:`latest` gives is brought up to date by the next call, and by a commit that is made on it; so does :meth:`at`
    where it is the same version. Threads may share an object only to ask for versions.
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._latest: DeltaTable | None = None
        self._versions: dict[int, DeltaTable] = {}

    def latest(self) -> DeltaTable:
        """The newest version.

        Raises
        ------
        TableNotFoundError
            There is no table (yet).
        """
        if self._latest is None:
            self._latest = DeltaTable(self.path)
        else:
            self._latest.update_incremental()
        return self._latest

    def at(self, version: int | None) -> DeltaTable:
        """A version; the newest without one."""
        if version is None:
            return self.latest()
        if self._latest is not None and self._latest.version() == version:
            return self._latest
        if version not in self._versions:
            self._versions[version] = DeltaTable(self.path, version=version)
        return self._versions[version]

    def transaction_version(self, app_id: str) -> int | None:
        """The newest ``txnVersion`` that an application id has committed; ``None`` if none, or if there is no table."""
        try:
            version = self.latest().transaction_version(app_id)
        except TableNotFoundError:
            return None
        return None if version is None else int(version)

    def total_bytes(self, version: int | None = None) -> int:
        """Bytes of the data files of a version, the newest by default."""
        return sum(int(size) for size in self.at(version).get_add_actions(flatten=True).column("size_bytes").to_pylist())
