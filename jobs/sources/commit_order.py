"""The files of an append-only table in the order in which commits brought them.

A changelog's rows are ordered by their commits, unless a column says which is newer. The files are those that the commits
themselves added: one that OPTIMIZE has made holds rows of several commits, and does not say which row is of which.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.log import Action, DeltaLog, files_of, logged_rows

_REMEDY: Final = (
    "'source.order' names a column or an expression that orders the rows of a key, and nothing of this is needed; or keep the "
    "log and the files (delta.logRetentionDuration, delta.deletedFileRetentionDuration)"
)


class AppendedFile(NamedTuple):
    """A file that a commit has added, its rows (-1 where the log does not say), and the commit's version (-1: not known)."""

    path: str
    rows: int = -1
    commit: int = -1

    @classmethod
    def of(cls, add: Action, commit: int) -> AppendedFile:
        """The file of an action of a commit."""
        rows = logged_rows(add)
        return cls(add["path"], -1 if rows is None else rows, commit)


class CommitOrder:
    """What the log says of one table; commits are read once.

    Parameters
    ----------
    name : of the source, for messages.
    """

    def __init__(self, name: str, log: DeltaLog) -> None:
        self._name = name
        self._log = log
        self._files: list[AppendedFile] = []
        self._until = -1

    def files(self, version: int, live: Collection[str]) -> list[AppendedFile]:
        """The files with all rows as of a version.

        Parameters
        ----------
        live : files of that version, which are there.

        Raises
        ------
        SourceError : the log does not have all commits any more, or a file is gone.
        """
        for number in range(self._until + 1, version + 1):
            if number == 0 and not self._log.has(0):
                raise SourceError(
                    f"source {self._name} ({self._log.path}): the log begins after version 0, so it is not known in which "
                    f"order its rows came; {_REMEDY}"
                )
            _, adds, _ = files_of(self._log.commit(number))
            self._files += [AppendedFile.of(add, number) for add in adds]
            self._until = number
        found = [file for file in self._files if file.commit <= version]
        replaced = [file.path for file in found if file.path not in live]
        gone = [path for path, size in zip(replaced, self._log.file_sizes(replaced), strict=True) if size is None]
        if gone:
            raise SourceError(
                f"source {self._name} ({self._log.path}): {len(gone)} of the files that commits have added are gone "
                f"(compacted, and vacuumed away), the first is {gone[0]}, so it is not known in which order their rows "
                f"came; {_REMEDY}"
            )
        return found
