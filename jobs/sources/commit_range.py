"""Changes that the commits of a range made to a table, from its log."""

from __future__ import annotations

from dataclasses import dataclass, field

from relstate_dagster.jobs.sources.change_files import ChangeFile
from relstate_dagster.jobs.sources.commit_order import AppendedFile
from relstate_dagster.jobs.sources.file_layout import file_name
from relstate_dagster.jobs.sources.row_tracking import FirstRow
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.log import CHANGE_FEED, ROW_TRACKING, Action, is_on, rows_copied


@dataclass(slots=True)
class CommitRange:
    """Commits between two pins, looked at one after the other.

    Parameters
    ----------
    changed : files with the changes; ``None`` where only Delta can read them.
    rows_inserted, rows_deleted : sums over the commits.
    changed_bytes : of the files with the changes.
    appended : files that came in with changed rows.
    only_appends : whether no row was updated or deleted.
    partitions : partition values of appended files, by path, as texts of the log.
    gone : files of the range that are not there any more.
    touched : names of all files that a commit added or removed, also without a change of rows.
    rows_copied : unchanged rows that were written to other files, as far as writers tell.
    first_rows : ids and versions that row tracking has of each file, by path: more than one if commits disagree.
    alters : whether a commit changed columns or properties.
    switches_feed_off : whether the change data feed is off after one of them.
    switches_tracking_off : whether row tracking is off after one of them.
    missing : the error of the first commit that the log lacks.
    """

    changed: list[ChangeFile] | None
    rows_inserted: int = 0
    rows_deleted: int = 0
    changed_bytes: int = 0
    appended: list[AppendedFile] = field(default_factory=list)
    only_appends: bool = True
    partitions: dict[str, dict[str, str | None]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    rows_copied: int = 0
    first_rows: dict[str, set[FirstRow]] = field(default_factory=dict)
    alters: bool = False
    switches_feed_off: bool = False
    switches_tracking_off: bool = False
    missing: SourceError | None = None

    def note(self, actions: list[Action]) -> None:
        """Note the files and properties of the next commit."""
        for action in actions:
            file = action.get("add") or action.get("remove")
            if file is not None:
                self.touched.add(file_name(file["path"]))
                first = FirstRow.of(file)
                if first is not None:
                    self.first_rows.setdefault(file["path"], set()).add(first)
            metadata = action.get("metaData")
            if metadata is not None:
                self.alters = True
                properties = metadata.get("configuration") or {}
                self.switches_feed_off = self.switches_feed_off or not is_on(properties, CHANGE_FEED)
                self.switches_tracking_off = self.switches_tracking_off or not is_on(properties, ROW_TRACKING)
        if any("remove" in action for action in actions):
            self.rows_copied += rows_copied(actions)
