"""Sources of one view as of an epoch: readers, pins, and changes between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.plan.nodes import Scan, walk
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.jobs.sources.pins import ChangeRange, Pin
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.jobs.sources.schema_changes import added_columns, changed_columns
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads, made_columns
from relstate_dagster.state_lib.constants import COMMIT_VERSION, MADE_BY_SOURCES, ROW_ID, WEIGHT
from relstate_dagster.state_lib.errors import EpochError, SourceError
from relstate_dagster.state_lib.sql_text import quoted


@dataclass(frozen=True)
class PinnedSources:
    """The sources that a view reads at one epoch.

    Parameters
    ----------
    reads : what the views of a run share of what they read of sources.
    """

    warehouse: Warehouse
    catalog: CatalogState
    view: ViewEntry
    epoch: EpochEntry
    reads: SourceReads

    @property
    def since(self) -> EpochEntry | None:
        """The epoch that this one builds on; as :meth:`.jobs.catalog.state.CatalogState.last_of`."""
        return self.catalog.last_of(self.view)

    def source(self, name: str) -> Source:
        """The reader of a source, one for all views of a run.

        Raises
        ------
        SourceError : there is no such source.
        """
        entry = self.catalog.sources.get(name)
        if entry is None:
            raise SourceError(f"view {self.view.name} reads {name}, which is neither a source nor a view any more")
        return self.reads.source(self.warehouse, entry)

    def pin(self, name: str) -> Pin:
        """The version of a source that this epoch reads."""
        return self.pin_of(self.epoch, name)

    @staticmethod
    def pin_of(epoch: EpochEntry, name: str) -> Pin:
        """The version of a source that an epoch has pinned.

        Raises
        ------
        EpochError : it has pinned none.
        """
        pin = epoch.pins.get(name)
        if pin is None:
            raise EpochError(f"epoch {epoch.epoch} has no pinned version of source {name}; rebuild with --full-refresh")
        return pin

    def range(self, name: str, since: Pin) -> ChangeRange:
        """Changes of a source between some version and this epoch's.

        Raises
        ------
        SourceError : that cannot be read, or not any more, or a column that the view reads has become another one.
        """
        source, until = self.source(name), self.pin(name)
        found = self.reads.range(source, since, until, append_only=lambda: self._reads_append_only(name))
        changed = changed_columns(since.schema_json, until.schema_json, self._columns_read(name))
        if changed:
            raise SourceError(
                f"source {name} ({source.path}) changed its schema between versions {since.version} and {until.version}, and "
                f"view {self.view.name} reads it: {', '.join(changed)}; rebuild the view with --full-refresh"
            )
        return found

    def changed_since(self, name: str, since: Pin) -> ChangeRange | None:
        """As :meth:`range`; ``None`` where that cannot be read."""
        try:
            return self.range(name, since)
        except SourceError:
            return None

    def new_columns(self, name: str) -> tuple[str, ...]:
        """The columns of a source that came new since the view's last epoch."""
        since = self.since
        return () if since is None else added_columns(self.pin_of(since, name).schema_json, self.pin(name).schema_json)

    def reads_all_columns(self, name: str) -> bool:
        """Whether the view reads all columns that a source had, as ``SELECT *`` does."""
        return (self._planned(name) or {}).keys() - MADE_BY_SOURCES == (self._columns_read(name) or set()) - MADE_BY_SOURCES

    def snapshot(self, name: str, session: SparkSession) -> DataFrame:
        """A source as of this epoch, with the columns that the view was planned with.

        ``*`` means those.
        """
        source, pin, planned = self.source(name), self.pin(name), self._planned(name)
        if self.catalog.sources[name].is_changelog:
            rows = self.as_planned(name, source.all_rows(session, pin, self.generated_columns(name)).drop(WEIGHT))
        else:
            rows = source.snapshot(session, pin)
        there = rows.columns
        wanted = [column for column in there if planned is None or column in planned]
        return rows if wanted == there else rows.select(*map(quoted, wanted))

    def generated_columns(self, name: str) -> frozenset[str]:
        """The columns that the view reads of a source and that the source makes."""
        if self._planned(name) is None and self.catalog.sources[name].is_changelog:
            return frozenset({COMMIT_VERSION})
        return made_columns(self.view, name)

    def as_planned(self, name: str, rows: DataFrame) -> DataFrame:
        """Rows with all columns that the view was planned with, also dropped ones."""
        return self._with_planned(name, rows, keeps_unread=True)

    def as_read(self, name: str, rows: DataFrame) -> DataFrame:
        """As :meth:`as_planned`, with NULL in columns that the view never reads.

        The driver holds less then.
        """
        return self._with_planned(name, rows, keeps_unread=False)

    def _with_planned(self, name: str, rows: DataFrame, *, keeps_unread: bool) -> DataFrame:
        planned, read = self._planned(name) or {}, self._columns_read(name)
        unread = set() if read is None else planned.keys() - (read - MADE_BY_SOURCES) - self.generated_columns(name) - {ROW_ID}
        dropped, nulled = planned.keys() - {ROW_ID, *rows.columns}, set() if keeps_unread else unread
        if not dropped and not nulled:
            return rows
        null = F.lit(None)
        # If the view did read a dropped column, that would be an error and not a wrong row.
        no_more = F.raise_error(F.lit(f"source {name} has no column {', '.join(sorted(dropped))} any more"))
        kept = [null.cast(planned[c]).alias(c) if c in nulled else F.col(quoted(c)) for c in rows.columns]
        added = [(null if c in unread else no_more).cast(planned[c]).alias(c) for c in sorted(dropped)]
        return rows.select(*kept, *added)

    def _planned(self, name: str) -> dict[str, str] | None:
        """Columns of a source that the view was planned with, and their types.

        ``None`` if the plan does not have them.
        """
        assert self.view.plan is not None
        scans = [n for n in walk(self.view.plan) if isinstance(n, Scan) and n.relation == name]
        return {f.name: f.data_type for scan in scans for f in scan.columns} or None

    @cached_property
    def _used_columns(self) -> dict[str, set[str]]:
        assert self.view.plan is not None
        return used_columns(self.view.plan)

    def _columns_read(self, name: str) -> set[str] | None:
        """At least the columns of a source that the view reads, and its key.

        ``None`` if the plan does not have them.
        """
        used = self._used_columns.get(name)
        return None if used is None else used | set(self.catalog.sources[name].primary_key)

    def _reads_append_only(self, name: str) -> bool:
        assert self.view.plan is not None
        return any(isinstance(n, Scan) and n.relation == name and n.append_only for n in walk(self.view.plan))
