"""Reads the commits of a Delta table from its log, without Spark.

It finds the newest version of a source, and checks what a range of versions did before any of it is read. It also gives the
rows and bytes written by a commit. Of data files only footers are read, and only those that the log has no row count of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

from pyarrow import fs

from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import Address, filesystem_of, full_path
from relstate_dagster.state_lib.lake.parquet import footer_rows
from relstate_dagster.state_lib.lake.table import DeltaError, DeltaTable, OpenedTable, TableNotFoundError

Action = dict[str, Any]

CHANGE_FEED: Final = "delta.enableChangeDataFeed"
ROW_TRACKING: Final = "delta.enableRowTracking"


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts of a Delta table at one version."""

    version: int
    table_uuid: str
    schema_json: str
    properties: dict[str, str]
    partition_columns: tuple[str, ...]

    @property
    def has_change_feed(self) -> bool:
        """Whether the change data feed is on."""
        return is_on(self.properties, CHANGE_FEED)

    @property
    def tracks_rows(self) -> bool:
        """Whether rows have ids."""
        return is_on(self.properties, ROW_TRACKING)

    @property
    def column_mapping(self) -> str:
        """Column mapping: ``none`` (by names), ``name`` (by other names) or ``id``."""
        return self.properties.get("delta.columnMapping.mode", "none")

    @property
    def is_append_only(self) -> bool:
        """Whether Delta itself refuses updates and deletes on the table."""
        return is_on(self.properties, "delta.appendOnly")


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """Whether a property of a table is true; it is not by default."""
    return str(properties.get(name, "false")).lower() == "true"


def table_facts(table: OpenedTable, version: int | None = None) -> TableFacts:
    """Facts of a table at a version (the newest by default).

    Raises
    ------
    SourceError : there is no Delta table at the path, or it does not have that version.
    """
    try:
        opened = table.at(version)
    except TableNotFoundError as error:
        raise SourceError(f"there is no Delta table at {table.path}") from error
    except DeltaError as error:
        which = "" if version is None else f" at version {version}"
        # As delta-rs says it.
        managed = "catalog-managed" in str(error)
        reason = "its catalog alone knows its commits (catalogManaged), and such tables are not read here" if managed else error
        raise SourceError(f"the Delta table at {table.path} cannot be opened{which}: {reason}") from error
    metadata = opened.metadata()
    properties = {k: v for k, v in metadata.configuration.items() if v is not None}
    return TableFacts(
        opened.version(), str(metadata.id), _in_order(opened.schema().to_json()), properties, tuple(metadata.partition_columns)
    )


def _in_order(schema_json: str) -> str:
    """A schema with a stable text.

    A column's own metadata come in any order.
    """
    return json.dumps(json.loads(schema_json), sort_keys=True)


class DeltaLog:
    """The log of one table, read commit by commit."""

    def __init__(self, path: str) -> None:
        self.path = Address.parse(path).spark

    @cached_property
    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        return filesystem_of(self.path)

    def _commit_path(self, version: int) -> str:
        return f"{self._filesystem[1]}/_delta_log/{version:020d}.json"

    def is_empty(self, version: int) -> bool:
        """Whether a commit's file exists and is empty.

        Readers of Delta pass over such a file without a word.
        """
        (found,) = self._filesystem[0].get_file_info([self._commit_path(version)])
        return found.type is fs.FileType.File and found.size == 0

    def latest_version(self, at_least: int | None = None) -> int:
        """The newest version.

        From a known one on, by looking for the commits that would follow it.
        """
        if at_least is None or not self.has(at_least):
            return table_facts(OpenedTable(self.path)).version
        version = at_least
        while self.has(version + 1):
            version += 1
        return version

    def has(self, version: int) -> bool:
        """Whether the log has a version's commit.

        It may be cleaned up, or not be there yet.
        """
        return self._sizes([self._commit_path(version)])[0] is not None

    def fingerprint(self, version: int) -> str | None:
        """Digest of a version's commit; ``None`` if the log lacks it.

        Files have names of their own in each commit, so no two commits are alike, also not those of the same version in two
        copies of a table.
        """
        content = self._content(version)
        return None if content is None else _fingerprint(content)

    def commit(self, version: int) -> Commit:
        """The actions of one commit.

        Raises
        ------
        SourceError : the commit is no longer in the log, or is not readable.
        """
        content = self._content(version)
        if content is None:
            raise SourceError(
                f"version {version} is no longer in the log of {self.path} (log retention passed), so its changes cannot "
                "be read any more. Rebuild the views that read it with --full-refresh, and run more often or raise "
                "delta.logRetentionDuration"
            )
        try:
            # Lines end with a line feed and nothing else: texts have U+2028 and the like as they are.
            actions = [json.loads(line) for line in content.split(b"\n") if line.strip()]
        except ValueError as error:
            raise SourceError(
                f"version {version} in the log of {self.path} is no JSON ({error}): the log is damaged, restore it"
            ) from error
        if not actions:
            raise SourceError(f"version {version} in the log of {self.path} is empty: the log is damaged, restore it")
        return Commit(self.path, _fingerprint(content), actions)

    def _content(self, version: int) -> bytes | None:
        try:
            with self._filesystem[0].open_input_stream(self._commit_path(version)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def file_sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Sizes of files, relative to the table; ``None`` for missing ones."""
        return self._sizes([f"{self._filesystem[1]}/{unquote(path)}" for path in paths])

    def _sizes(self, paths: Sequence[str]) -> list[int | None]:
        found = self._filesystem[0].get_file_info(list(paths))
        return [None if info.type is fs.FileType.NotFound else int(info.size or 0) for info in found]


class Commit(list[Action]):
    """The actions of one commit.

    Parameters
    ----------
    table : where the table lies.
    fingerprint : as :meth:`DeltaLog.fingerprint`.
    """

    def __init__(self, table: str, fingerprint: str, actions: Iterable[Action]) -> None:
        super().__init__(actions)
        self.table = table
        self.fingerprint = fingerprint


def _fingerprint(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def commit_info(actions: list[Action]) -> Action:
    """The ``commitInfo`` action of a commit, empty where the writer left it out."""
    return next((dict(a["commitInfo"]) for a in actions if "commitInfo" in a), {})


def files_of(actions: list[Action]) -> tuple[list[Action], list[Action], list[Action]]:
    """Files of a commit: change data, added, and removed.

    Only those that change rows.
    """
    recorded = [a["cdc"] for a in actions if "cdc" in a]
    adds = [a["add"] for a in actions if a.get("add", {}).get("dataChange")]
    removes = [a["remove"] for a in actions if a.get("remove", {}).get("dataChange")]
    return recorded, adds, removes


def logged_rows(action: Action) -> int | None:
    """Rows of an added file, deleted ones included; ``None`` if not logged."""
    rows = json.loads(action.get("stats") or "{}").get("numRecords")
    return None if rows is None else int(rows)


def marked_rows(action: Action) -> int:
    """The rows of a file that are marked as deleted."""
    return int((action.get("deletionVector") or {}).get("cardinality", 0))


def rows_by_partition(actions: Commit, column: str) -> dict[str, int]:
    """Rows added by a commit, by a partition column's value.

    From the log, else from the files' footers.
    """
    adds = [action["add"] for action in actions if "add" in action]
    unknown = [add["path"] for add in adds if logged_rows(add) is None]
    read = dict(zip(unknown, footer_rows([full_path(actions.table, path) for path in unknown]), strict=True))
    rows: dict[str, int] = {}
    for add in adds:
        value, logged = add["partitionValues"].get(column), logged_rows(add)
        rows[value] = rows.get(value, 0) + (read[add["path"]] if logged is None else logged)
    return rows


def rows_changed(actions: list[Action]) -> tuple[int, int]:
    """Rows inserted and deleted by a Spark commit, from its metrics.

    An update counts as both.

    For reports only: other writers leave metrics out, or call them otherwise.
    """
    metrics = commit_info(actions).get("operationMetrics", {})

    def metric(name: str) -> int:
        return int(metrics.get(name, 0))

    if commit_info(actions).get("operation") == "MERGE":
        updated = metric("numTargetRowsUpdated")
        return metric("numTargetRowsInserted") + updated, metric("numTargetRowsDeleted") + updated
    if "numUpdatedRows" in metrics:
        return metric("numUpdatedRows"), metric("numUpdatedRows")
    deleted = metric("numDeletedRows")
    # A write that replaces some rows (replaceWhere) counts those that it copies to other files.
    written = metric("numOutputRows") - metric("numCopiedRows")
    return written if commit_info(actions).get("operation") not in ("DELETE",) else 0, deleted


def rows_copied(actions: list[Action]) -> int:
    """Rows that Spark copied to new files in a commit; for reports.

    Its own metric also counts rows that stay in a file when a deletion vector marks others of it.
    """
    _, added, _ = files_of(actions)
    written = sum(logged_rows(add) or 0 for add in added if not add.get("deletionVector"))
    return max(written - rows_changed(actions)[0], 0)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit: its version and what its writer said of it.

    ``restored`` is the version that it went back to, where it is a RESTORE by a version.
    """

    version: int
    user_metadata: str | None
    restored: int | None = None


def latest_commits(path: str, limit: int | None = None) -> list[HistoryEntry]:
    """The newest commits of a table, newest first."""
    return [HistoryEntry(int(e["version"]), e.get("userMetadata"), _restored(e)) for e in DeltaTable(path).history(limit)]


def _restored(info: Action) -> int | None:
    version = str((info.get("operationParameters") or {}).get("version"))
    return int(version) if info.get("operation") == "RESTORE" and version.isdigit() else None
