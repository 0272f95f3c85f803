"""Changes of a Delta table between two pins, from its log: files, bytes and rows.

Changes are read as commits recorded them. Where they did not, or where that is gone, they are the net difference of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from relstate_dagster.jobs.sources.change_files import ChangeFile, change_files
from relstate_dagster.jobs.sources.commit_order import AppendedFile
from relstate_dagster.jobs.sources.commit_range import CommitRange
from relstate_dagster.jobs.sources.deleted_rows import DeletedRows
from relstate_dagster.jobs.sources.delta_versions import REBUILD, DeltaVersions
from relstate_dagster.jobs.sources.file_layout import FileLayout, struct_of
from relstate_dagster.jobs.sources.net_files import FileDifference, FilesAt, reads_older_files, without_cancelled
from relstate_dagster.jobs.sources.pins import ChangeRange, NetChange, Pin, Rest
from relstate_dagster.jobs.sources.row_counts import RowCounts
from relstate_dagster.jobs.sources.row_tracking import RowTracking
from relstate_dagster.state_lib.char_columns import char_type
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.address import is_absolute
from relstate_dagster.state_lib.lake.log import Action, TableFacts, files_of
from relstate_dagster.state_lib.lake.table import DeltaError
from relstate_dagster.state_lib.tuning import tuning

_REBUILD_LONGER: Final = (
    "Rebuild the views that read it with --full-refresh, and keep files longer than the time between two runs "
    "(delta.deletedFileRetentionDuration)"
)
#: Files whose first ids are listed in an expression.
_MOST_TRACKED_FILES: Final = 500
NO_FEED: Final = "it has no change data feed"


class DeltaChanges:
    """Ranges of changes of a table.

    Parameters
    ----------
    name : of the source, for advice.
    """

    def __init__(self, name: str, versions: DeltaVersions) -> None:
        self.name = name
        self._versions = versions

    def check_range(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """Check that the changes between two pins can be read, and measure them.

        Raises
        ------
        SourceError : the table was replaced or went back, a commit or a file of the range is gone, or rows changed that no
            change feed recorded.
        """
        if since.first_files is not None:
            return self._check_rest(since, until, append_only=append_only)
        if since.is_same(until):
            return ChangeRange(0, 0, 0, (), True, False, ())
        where = f"{self._versions.where}"
        if since.table_uuid != until.table_uuid or until.version < since.version:
            raise SourceError(f"{where} is another table than at version {since.version}: it was replaced; {REBUILD}")
        for pin in (since, until):
            self._versions.check_is_there(pin)
        facts = self._versions.facts(until.version)
        commits = self._commits(since, until, facts, append_only=append_only)
        reason = None if append_only else self._why_net(commits, since, facts)
        if reason is not None:
            return self._net_range(commits, since, until, facts, reason)
        self._check_readable(commits, since, until)
        return ChangeRange(
            commits.rows_inserted,
            commits.rows_deleted,
            commits.changed_bytes,
            tuple(commits.appended),
            commits.only_appends,
            facts.has_change_feed,
            None if commits.changed is None else tuple(commits.changed),
            partitions=commits.partitions if commits.changed is None and self._has_values(facts) else None,
        )

    def _commits(self, since: Pin, until: Pin, facts: TableFacts, *, append_only: bool) -> CommitRange:
        """Changes of the commits between two pins, from the log."""
        counts = RowCounts(
            self._versions.table.path, lambda: {f.path: f.rows for f in self._versions.data_files(since.version)}
        )
        layout = FileLayout.of(self._versions.table.path, facts)
        commits = CommitRange(changed=None if layout is None else [])
        marking_commits = 0
        for version in range(since.version + 1, until.version + 1):
            try:
                actions = self._versions.log.commit(version)
            except SourceError as error:
                if self._versions.log.has(version):
                    raise
                commits.missing = error
                return commits
            recorded, adds, removes = files_of(actions)
            commits.note(actions)
            if removes or recorded:
                commits.only_appends = False
                if append_only:
                    self._refuse_updates(version)
            read = recorded or [*adds, *removes]
            commits.gone += self._fill_in_sizes(read)
            if commits.gone:
                continue
            plus, minus = counts.changed(actions)
            commits.rows_inserted, commits.rows_deleted = commits.rows_inserted + plus, commits.rows_deleted + minus
            vectors = partial(self._vectors, version) if marking_commits < tuning().marking_commits else lambda: None
            of_commit = None if layout is None else change_files(layout, actions, vectors)
            if of_commit is None:
                commits.changed_bytes += sum(int(f.get("size") or 0) for f in read)
            else:
                commits.changed_bytes += sum(f.bytes for f in of_commit)
                marking_commits += any(f.positions is not None for f in of_commit)
            commits.changed = None if commits.changed is None or of_commit is None else [*commits.changed, *of_commit]
            commits.appended += [AppendedFile.of(add, version) for add in adds]
            commits.partitions |= {add["path"]: add.get("partitionValues") or {} for add in adds}
        return commits

    def _check_readable(self, commits: CommitRange, since: Pin, until: Pin) -> None:
        """Raise if a commit of a range is gone, or a file that it names."""
        if commits.missing is not None:
            raise commits.missing
        if commits.gone:
            raise SourceError(
                f"{self._versions.where}: {len(commits.gone)} files with the changes between versions "
                f"{since.version} and {until.version} are gone (vacuumed); the first is {commits.gone[0]}. {_REBUILD_LONGER}"
            )

    def _why_net(self, commits: CommitRange, since: Pin, facts: TableFacts) -> str | None:
        """Reason not to read changes as they were recorded; ``None`` without one."""
        if commits.missing is not None:
            return "commits are no longer in its log"
        if commits.gone:
            return "files with its recorded changes are gone"
        if commits.changed is not None:  # read from files that commits name, whether recorded or not
            return None if facts.has_change_feed or commits.only_appends else NO_FEED
        if not facts.has_change_feed:
            return None if commits.only_appends and self._has_values(facts) else NO_FEED
        if commits.alters and (commits.switches_feed_off or not self._had_feed(since)):
            return "its change data feed was off for a time"
        return "Delta does not read its change data feed over a change of its columns" if commits.alters else None

    def _has_values(self, facts: TableFacts) -> bool:
        """Whether files and the log's partition values hold all of a row."""
        return facts.column_mapping != "id" and not any(map(char_type, struct_of(facts.schema_json).fields))

    def _had_feed(self, pin: Pin) -> bool:
        """Whether the feed was on at a version; true if the log lacks it."""
        try:
            return self._versions.facts(pin.version).has_change_feed
        except SourceError:
            return True

    def _net_range(self, commits: CommitRange, since: Pin, until: Pin, facts: TableFacts, reason: str) -> ChangeRange:
        """The range as the net difference of files.

        Those of both versions, or, where these are fewer bytes, those of the commits. So files that OPTIMIZE has rewritten
        are mostly not read.

        Raises
        ------
        SourceError : files of the earlier version are gone.
        """
        by_commits = by_versions = difference = None
        layout = self._layout_of_both(commits, since, until)
        if layout is not None and commits.changed is not None and not commits.gone and commits.missing is None:
            by_commits = without_cancelled(commits.changed)
        try:
            difference = self._difference(commits, since, until, reason)
            by_versions = None if layout is None else difference.change_files(layout)
        except SourceError:
            if by_commits is None:
                raise
        found = [files for files in (by_versions, by_commits) if files is not None]
        files = min(found, key=lambda some: sum(file.bytes for file in some), default=None)
        if files == ():
            rows = (0, 0)
        elif difference is None or (files is not None and files is by_commits):
            rows = (commits.rows_inserted, commits.rows_deleted)
        else:
            rows = difference.rows()
        total_bytes = 0 if difference is None or not difference.names else difference.total_bytes
        return ChangeRange(
            *rows,
            total_bytes if files is None else sum(file.bytes for file in files),
            (),
            False,
            facts.has_change_feed,
            files,
            net=NetChange(
                reason,
                frozenset() if difference is None else difference.names,
                len(self._versions.data_files(until.version) if difference is None else difference.after.files),
                self._advice(commits, facts),
                None if files is None or sum(rows) < tuning().tracked_rows else self._tracking(commits, since, facts, files),
            ),
        )

    def _tracking(self, commits: CommitRange, since: Pin, facts: TableFacts, files: Sequence[ChangeFile]) -> RowTracking | None:
        """Ids of the rows in files; ``None`` where they are not known.

        They are not if rows were not tracked all the time. Of very many files they are not listed.
        """
        if commits.switches_tracking_off or commits.missing is not None or len(files) > _MOST_TRACKED_FILES:
            return None
        try:
            before = self._versions.facts(since.version)
        except SourceError:
            return None
        return RowTracking.between(before, facts, commits.first_rows, {file.path for file in files})

    def _layout_of_both(self, commits: CommitRange, since: Pin, until: Pin) -> FileLayout | None:
        """Layout of the files of both versions; ``None`` where only Delta can read them."""
        layout = self._versions.layout(until.version)
        if layout is None or (not commits.alters and commits.missing is None):
            return layout
        try:
            return layout if reads_older_files(layout, self._versions.facts(since.version)) else None
        except SourceError:
            return None

    def _difference(self, commits: CommitRange, since: Pin, until: Pin, reason: str) -> FileDifference:
        """The files in which two pinned versions differ.

        Raises
        ------
        SourceError : the earlier version cannot be opened any more, or its files are gone.
        """
        where = f"{self._versions.where}: {reason}"
        try:
            touched = None if commits.missing is not None else commits.touched
            difference = FileDifference.between(self._differing(since.version), self._differing(until.version), touched)
        except DeltaError as error:
            self._check_readable(commits, since, until)
            raise SourceError(f"{where}, and version {since.version} cannot be opened any more; {REBUILD}") from error
        own = [path for path in (*difference.removed, *difference.marked) if not is_absolute(path)]
        gone = [path for path, size in zip(own, self._versions.log.file_sizes(own), strict=True) if size is None]
        if gone:
            self._check_readable(commits, since, until)
            raise SourceError(
                f"{where}, and {len(gone)} files of version {since.version} are gone (vacuumed); the first is {gone[0]}. "
                f"{_REBUILD_LONGER}"
            )
        return difference

    def _differing(self, version: int) -> FilesAt:
        """The files of a version, to compare them with those of another one."""
        return FilesAt({file.path: file for file in self._versions.data_files(version)}, self._versions.deleted(version))

    def _advice(self, commits: CommitRange, facts: TableFacts) -> str:
        """Advice to read later changes more cheaply; empty without any."""
        if facts.has_change_feed:
            is_late = commits.missing is not None or commits.gone
            longer = "delta.logRetentionDuration and delta.deletedFileRetentionDuration"
            return f"source {self.name}: run more often, or raise {longer}, to read recorded changes" if is_late else ""
        if not commits.rows_copied:
            return ""
        return (
            f"source {self.name}: {commits.rows_copied:,} unchanged rows were read, as commits had rewritten their files; with "
            "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') only changed rows are"
        )

    def _check_rest(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """As :meth:`check_range`, from some files of a pin on."""
        first, last = since.first_files or 0, until.first_files
        self._versions.check_is_there(since)
        later = self.check_range(since.whole, until.whole, append_only=append_only)
        files = self._versions.files(since.whole).files[first:last]
        gone = self._fill_in_sizes([{"path": file.path, "size": file.bytes} for file in files])
        if gone:
            raise SourceError(
                f"{self._versions.where}: {len(gone)} files of version {since.version} are gone (vacuumed away), the "
                f"first is {gone[0]}; {REBUILD}"
            )
        return replace(
            later,
            rows_inserted=later.rows_inserted + sum(max(0, file.rows) for file in files),
            changed_bytes=later.changed_bytes + sum(file.bytes for file in files),
            appended=(*(AppendedFile(file.path, file.rows) for file in files), *later.appended),
            files=None,
            rest=Rest(first, last, later),
        )

    def _fill_in_sizes(self, files: list[Action]) -> list[str]:
        """Set the sizes that a commit left out; which of the files are gone."""
        own = [f for f in files if not is_absolute(f["path"])]
        gone = []
        for file, size in zip(own, self._versions.log.file_sizes([f["path"] for f in own]), strict=True):
            if size is None:
                gone.append(file["path"])
            elif file.get("size") is None:
                file["size"] = size
        return gone

    def _refuse_updates(self, version: int) -> None:
        """Raise for a commit that changed rows which are declared never to change."""
        raise SourceError(
            f"{self._versions.where} is declared append-only, but version {version} updated or deleted rows; "
            f"drop the declaration and {REBUILD}"
        )

    def _vectors(self, version: int) -> tuple[DeletedRows, DeletedRows] | None:
        """The rows deleted before and after a commit; ``None`` where that is not known."""
        try:
            before, after = (self._versions.deleted(v) for v in (version - 1, version))
        except DeltaError:  # the version before is not in the log any more
            return None
        return None if before is None or after is None else (before, after)
