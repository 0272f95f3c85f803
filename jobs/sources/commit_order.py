"""The files of an append-only table in the order in which commits brought them.

A changelog's rows are ordered by their commits, unless a column says which is newer. The files are those that the commits
themselves added. A file that OPTIMIZE has made holds rows of several commits, and does not say which commit a row is from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.log import Action, DeltaLog, commit_info, files_of, logged_rows

_ORDER: Final = "name a column or an expression that orders the rows of a key in 'source.order'"
_REMEDY: Final = f"{_ORDER}, or keep the log and the files (delta.logRetentionDuration, delta.deletedFileRetentionDuration)"
#: What Delta calls a write whose rows replace others: they are all new, and come with this commit.
_OVERWRITE: Final = "WRITE"


class AppendedFile(NamedTuple):
    """A file added by a commit: path, rows, and the commit's version.

    -1 if unknown.
    """

    path: str
    rows: int = -1
    commit: int = -1

    @classmethod
    def of(cls, add: Action, commit: int) -> AppendedFile:
        """The file of an action of a commit."""
        rows = logged_rows(add)
        return cls(add["path"], -1 if rows is None else rows, commit)


@dataclass(slots=True)
class _Added:
    """A file that commits have added and removed again.

    ``made_by`` is the commit that wrote rows of other files into it, ``rewritten_by`` also one that deleted some of its rows.
    """

    file: AppendedFile
    made_by: str = ""
    times: int = 0
    rewritten_by: str = ""


class CommitOrder:
    """Commits of one table's log, each read once.

    Parameters
    ----------
    name : of the source, for messages.
    """

    def __init__(self, name: str, log: DeltaLog) -> None:
        self._name = name
        self._log = log
        #: The files that each commit has added and removed by a change of rows, and what commits with both did.
        self._commits: list[tuple[list[Action], list[Action], str]] = []

    def files(self, version: int, live: Collection[str]) -> list[AppendedFile]:
        """The added files that hold the rows of a version, in commit order.

        A file that was deleted whole is not among them.

        Parameters
        ----------
        live : files of that version, which are there.

        Raises
        ------
        SourceError : the log does not have all commits any more, or a file is gone. Or rows were updated or deleted, so
            that the commits of the other rows of their files are not known.
        """
        where = f"source {self._name} ({self._log.path})"
        for number in range(len(self._commits), version + 1):
            if number == 0 and not self._log.has(0):
                raise SourceError(f"{where}: the log begins after version 0, so the order of its rows is not known: {_REMEDY}")
            actions = self._log.commit(number)
            _, adds, removes = files_of(actions)
            operation = str(commit_info(actions).get("operation", "a commit"))
            rewrites = adds and removes and operation != _OVERWRITE
            self._commits.append((adds, removes, f"version {number} ({operation})" if rewrites else ""))
        added = self._added(version)
        rewritten = next((a.rewritten_by for a in added.values() if a.times and a.rewritten_by), "")
        if rewritten:
            raise SourceError(
                f"{where}: {rewritten} updated or deleted rows and rewrote other rows of their files, so the order of the rows "
                f"is not known. RESTORE TABLE to the version before, or {_ORDER}"
            )
        found = [a.file for a in added.values() if a.times > 0]
        replaced = [file.path for file in found if file.path not in live]
        gone = [path for path, size in zip(replaced, self._log.file_sizes(replaced), strict=True) if size is None]
        if gone:
            raise SourceError(
                f"{where}: {len(gone)} of the files that commits have added are gone (compacted and vacuumed), so the order of "
                f"their rows is not known; the first is {gone[0]}: {_REMEDY}"
            )
        return found

    def _added(self, version: int) -> dict[str, _Added]:
        """Files that commits up to a version added or removed, in order."""
        found: dict[str, _Added] = {}
        for number, (adds, removes, rewrites) in enumerate(self._commits[: version + 1]):
            for add in adds:
                known = found.get(add["path"])
                if known is None:
                    known = found[add["path"]] = _Added(AppendedFile.of(add, number), rewrites)
                known.times += 1
                known.rewritten_by = (rewrites or f"version {number}") if add.get("deletionVector") else known.made_by
            for remove in removes:
                # A file of several commits that OPTIMIZE has made is in none of them.
                known = found.setdefault(remove["path"], _Added(AppendedFile(remove["path"]), rewrites))
                known.times -= 1
                if known.times < 0:
                    known.rewritten_by = rewrites or f"version {number}"
        return found
