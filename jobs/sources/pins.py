"""A source as of one commit, and the changes between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from relstate_dagster.jobs.sources.change_files import ChangeFile
from relstate_dagster.jobs.sources.commit_order import AppendedFile
from relstate_dagster.jobs.sources.row_tracking import RowTracking


@dataclass(frozen=True, slots=True)
class Pin:
    """A source as of one commit: what an epoch reads.

    Parameters
    ----------
    serial_base_ms : the first millisecond of the Serial ids that this epoch may hand out (keyless sources).
    fingerprint : of the commit of this version (:meth:`.state_lib.lake.log.DeltaLog.fingerprint`). A number alone does not
        name a commit: a table can be deleted and written again, or put back from a copy. Empty where it is not known.
    first_files : how many of the version's files are read, in the order of their paths; ``None`` for all of them. Views that
        are built in slices read some (:mod:`.jobs.run.slices`).
    """

    version: int
    table_uuid: str
    schema_json: str
    serial_base_ms: int = 0
    fingerprint: str = ""
    first_files: int | None = None

    @property
    def whole(self) -> Pin:
        """The same commit, with all of its files."""
        return replace(self, first_files=None)

    def is_same(self, other: Pin) -> bool:
        """Whether both name the same commit, and as many of its files."""
        ours, theirs = (self.version, self.table_uuid, self.first_files), (other.version, other.table_uuid, other.first_files)
        if ours != theirs:
            return False
        return self.fingerprint == other.fingerprint or not (self.fingerprint and other.fingerprint)

    @property
    def identity(self) -> str:
        """Names the commit that is pinned."""
        part = "" if self.first_files is None else f"/{self.first_files}"
        return f"{self.table_uuid}@{self.version}#{self.fingerprint[:12]}{part}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the catalog."""
        return {
            "version": self.version,
            "table_uuid": self.table_uuid,
            "schema": self.schema_json,
            "serial_base_ms": self.serial_base_ms,
            "fingerprint": self.fingerprint,
            **({} if self.first_files is None else {"first_files": self.first_files}),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Pin:
        """The pin that :meth:`to_dict` wrote."""
        return cls(
            values["version"],
            values["table_uuid"],
            values["schema"],
            values.get("serial_base_ms", 0),
            values.get("fingerprint", ""),
            values.get("first_files"),
        )


@dataclass(frozen=True, slots=True)
class Rest:
    """Files of an earlier pin that were not read yet, and the changes since.

    Files from a place in their order up to another one, or the end. ``later`` are the changes.

    ``later`` is what has changed since that pin.
    """

    first: int
    until: int | None
    later: ChangeRange


@dataclass(frozen=True, slots=True)
class NetChange:
    """Changes that are the net difference of the files of two versions.

    Parameters
    ----------
    reason : why recorded changes are not read.
    names : names of the files that differ, as Spark has them.
    total_files : of the later version.
    advice : how later changes would be cheaper to read; empty if they would not.
    tracking : ids of the rows in the files, where these tell apart what is unchanged.
    """

    reason: str
    names: frozenset[str]
    total_files: int
    advice: str = ""
    tracking: RowTracking | None = None


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The commits between two pins: rows and bytes they changed, and the files they appended.

    ``files`` are the files that hold the changes, where they can be read as they are; ``None`` where Delta must. ``rest`` is
    there where the earlier pin was not of all files: its rows are changes as well, and counted as such. ``net`` is there where
    the changes are not as the table recorded them, but what is left of rewritten files once equal rows cancel out.
    ``partitions`` are the partition values of appended files as texts, where only these tell them.
    """

    rows_inserted: int
    rows_deleted: int
    changed_bytes: int
    appended: tuple[AppendedFile, ...]
    only_appends: bool
    has_change_feed: bool
    files: tuple[ChangeFile, ...] | None = None
    rest: Rest | None = None
    net: NetChange | None = None
    partitions: Mapping[str, Mapping[str, str | None]] | None = None
