"""Views published as Delta tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.engine.delta_vacuum import vacuum_table
from relstate_dagster.jobs.engine.jvm import is_working
from relstate_dagster.jobs.engine.workloads import forget_table
from relstate_dagster.jobs.sources.delta_versions import DeltaVersions
from relstate_dagster.jobs.targets.chain import Chain, EpochCommit, Fence, Recorded
from relstate_dagster.jobs.targets.declared_table import DeclaredTable
from relstate_dagster.jobs.targets.delta_table import create_view_table, driver_writes, has_layout, written_by_driver
from relstate_dagster.jobs.targets.delta_writer import DeltaWriter
from relstate_dagster.jobs.targets.protocol import Target, TargetFound
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.lake.address import table_reference
from relstate_dagster.state_lib.lake.folders import StoredFiles, delete_folder, is_table
from relstate_dagster.state_lib.lake.log import latest_commits
from relstate_dagster.state_lib.lake.readable import why_unreadable
from relstate_dagster.state_lib.lake.rows import rows_at
from relstate_dagster.state_lib.lake.table import DeltaError, OpenedTable, TableNotFoundError
from relstate_dagster.state_lib.sql_text import text_literal


def _no_fence() -> None:
    """Let every write pass."""


class DeltaTarget(Target):
    """A Delta table with the view's columns, a hidden ``_key`` and a change data feed."""

    def open(
        self,
        session: SparkSession,
        declared: DeclaredTable,
        wanted: EpochCommit,
        recorded: Recorded,
        fence: Fence,
        *,
        is_first: bool,
    ) -> DeltaWriter:
        """Open the table as the catalog knows it, or create it."""
        table = OpenedTable(self.path)
        chain = self._chain(table, fence)
        if is_first:
            return self._of_new_generation(session, table, chain, declared, wanted, recorded)
        if not is_table(self.path):
            raise StateError(f"view {self.view}: its published table at {self.path} is gone; {chain.rebuild}")
        since = chain.since(recorded)
        done = since.made_by(wanted)
        if done is not None or since.is_clean:
            return DeltaWriter(table, chain, declared, wanted, since.known, done=done)
        if since.foreign is not None and not declared.is_restored:
            raise StateError(f"view {self.view}: {chain.changed_by_others(since, recorded)}")
        return DeltaWriter(table, chain, declared, wanted, chain.restore(since).known)

    def driver_can_write(self, declared: DeclaredTable) -> bool:
        """Whether the driver can write a table that is declared so."""
        return written_by_driver(declared)

    def found(self, declared: DeclaredTable, version: int, *, replaces: bool = False) -> TargetFound:
        """The table at a version, as an epoch would find it."""
        table = OpenedTable(self.path)
        size, rows = table.totals(version)
        return TargetFound(size, driver_writes(declared, table.at(version)), replaces=replaces, rows=rows)

    def rows(self, session: SparkSession, version: int) -> DataFrame:
        """All rows at a version, with the hidden key as the last column."""
        return DeltaVersions(self.view, self.path).rows(session, version)

    def register(self, session: SparkSession, name: str) -> None:
        """Give the table a name in Spark's catalog, unless it has that."""
        if not session.catalog.tableExists(name):
            session.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {text_literal(self.path)}")

    def held_rows(self, version: int, columns: Sequence[str], most_bytes: int | None = None) -> pa.Table | None:
        """Some columns at a version.

        ``None`` where only Spark can read them, or they are larger.
        """
        return rows_at(self.path, version, columns, most_bytes=most_bytes)

    def totals(self, version: int) -> tuple[int, int] | None:
        """Bytes and rows at a version, by its log.

        ``None`` if it cannot be opened, or has no counts.
        """
        try:
            size, rows = OpenedTable(self.path).totals(version)
        except (DeltaError, OSError):
            return None  # whoever reads its rows reports the error
        return None if rows is None else (size, rows)

    def why_unreadable(self, version: int) -> str | None:
        """The reason why a version cannot be read; ``None`` if it can."""
        return why_unreadable(self.path, version)

    def commits(self) -> list[tuple[int, EpochCommit]]:
        """Versions and identities of epochs, oldest first, without those that a RESTORE undid."""
        try:
            history = latest_commits(self.path)
        except TableNotFoundError:
            return []
        kept: list[tuple[int, str | None]] = []
        for commit in reversed(history):
            if commit.restored is not None:
                back_to = commit.restored
                kept = [earlier for earlier in kept if earlier[0] <= back_to]
            kept.append((commit.version, commit.user_metadata))
        found = [(version, EpochCommit.of_text(text)) for version, text in kept]
        return [
            (version, epoch_commit)
            for version, epoch_commit in found
            if epoch_commit is not None and epoch_commit.view == self.view
        ]

    def problem(self, recorded: Recorded) -> str | None:
        """Damage, or changes by other writers, since the recorded commit, with the remedies."""
        return self._chain(OpenedTable(self.path)).problem(recorded)

    def check_not_lost(self, recorded: Recorded) -> None:
        """Check at the cost of one file's size that the recorded commit was not lost."""
        self._chain(OpenedTable(self.path)).check_not_empty(recorded)

    def delete_unused_files(
        self, session: SparkSession, versions: Collection[int], hours: int
    ) -> tuple[StoredFiles, StoredFiles]:
        """Delete files that neither some versions nor the newest need."""
        return vacuum_table(session, self.path, versions, hours)

    def _chain(self, table: OpenedTable, fence: Fence = _no_fence) -> Chain:
        return Chain(table, self.view, "published table", is_restorable=True, fence=fence)

    def _of_new_generation(
        self,
        session: SparkSession,
        table: OpenedTable,
        chain: Chain,
        declared: DeclaredTable,
        wanted: EpochCommit,
        recorded: Recorded,
    ) -> DeltaWriter:
        """The table before the first epoch of a generation.

        There is none, or readers see it, or it is a leftover.
        """
        if not is_table(self.path):
            return self._created(session, declared, wanted)
        try:
            since = chain.since(recorded)
        except StateError:  # damaged; that is what the view is rebuilt for
            return self._created_again(session, declared, wanted)
        done = since.made_by(wanted)
        if done is not None:
            return DeltaWriter(table, chain, declared, wanted, since.known, done=done)
        if recorded.version is not None and has_layout(table, declared) and self._opens(session):
            # Readers of a view that is rebuilt go on until the one commit that replaces its rows.
            return DeltaWriter(table, chain, declared, wanted, since.newest, replaces=True)
        return self._created_again(session, declared, wanted)

    def _created(self, session: SparkSession, declared: DeclaredTable, wanted: EpochCommit) -> DeltaWriter:
        create_view_table(session, self.path, declared)
        table = OpenedTable(self.path)
        return DeltaWriter(table, self._chain(table), declared, wanted, table.latest().version(), is_empty=True)

    def _created_again(self, session: SparkSession, declared: DeclaredTable, wanted: EpochCommit) -> DeltaWriter:
        """A new table in place of a useless one.

        That is of a dropped view, damaged, or laid out differently.
        """
        delete_folder(self.path)
        forget_table(session, self.path)
        return self._created(session, declared, wanted)

    def _opens(self, session: SparkSession) -> bool:
        """Whether Spark can read the log of the table."""
        try:
            session.sql(f"DESCRIBE DETAIL {table_reference(self.path)}").collect()
        except (PySparkException, Py4JJavaError):
            if not is_working():
                raise
            return False
        return True
