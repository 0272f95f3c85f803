"""The protocol of targets: the tables that views are published to.

An epoch opens the target of a view, which gives a writer, and applies the view's change set by one of its four ways to write.
Readers ask the target for the rows of a version. Nothing else is known of a target. ``delta_target.py`` implements the
protocol; ``registry.py`` says which class opens targets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.targets.chain import EpochCommit, Fence, Recorded
from relstate_dagster.jobs.targets.declared_table import DeclaredTable
from relstate_dagster.state_lib.lake.folders import NO_FILES, StoredFiles

#: +1: the row is inserted or replaces the one of its key; -1: the row of its key is deleted.
OP: Final = "_relstate_op"
#: Whether the published table has a row of this key, which is to be replaced or deleted.
IS_THERE: Final = "_relstate_is_there"
#: Rows that the driver holds, or that Spark computes: the view's columns, ``_key``, ``OP`` and ``IS_THERE``, one row a key.
Changes: TypeAlias = pa.Table | DataFrame


@dataclass(frozen=True, slots=True)
class TargetFound:
    """The published table as it was found.

    Parameters
    ----------
    bytes : of its files.
    driver_writes : whether the driver can write this table.
    is_empty : it was made just now.
    replaces : all rows of an earlier generation are replaced.
    rows : of it; ``None`` where its files would have to be read for that.
    """

    bytes: int
    driver_writes: bool
    is_empty: bool = False
    replaces: bool = False
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The published table's version, and the rows that entered and left it.

    ``advice`` are lines that say what would make such epochs cheaper.
    """

    version: int
    rows_inserted: int
    rows_deleted: int
    advice: tuple[str, ...] = ()


class TargetWriter(ABC):
    """A target opened for the commit of one epoch.

    Each way to write makes one commit that holds the epoch's identity, on the version that the catalog knows. A second try of
    the same commit changes nothing.

    Attributes
    ----------
    found : the table as it was opened.
    done : version of the commit that an earlier try of this epoch has made.
    """

    found: TargetFound
    done: int | None

    def set_properties(self, session: SparkSession) -> None:
        """Set properties that the view declares by now."""
        return

    @abstractmethod
    def append(self, session: SparkSession, changes: Changes) -> Published:
        """Append rows, none of whose keys the table has."""

    @abstractmethod
    def merge(self, session: SparkSession, changes: Changes) -> Published:
        """Insert, replace and delete rows by their key."""

    @abstractmethod
    def replace(self, session: SparkSession, changes: DataFrame, keys: pa.ChunkedArray) -> Published:
        """Insert rows, and delete those with some keys: all that the table has of ``changes``."""

    @abstractmethod
    def overwrite(self, session: SparkSession, changes: DataFrame) -> Published:
        """Replace all rows; those of an earlier generation (``found.replaces``) with its columns."""

    def maintain(self) -> None:
        """Merge small files, in a commit that changes no rows."""
        return


class Target(ABC):
    """The published table of one view.

    Versions are numbers that grow. Every method but those that take a session works without Spark. Methods that have a body
    here are optional. A target without them has no checks, no history and nothing to delete.

    Parameters
    ----------
    view : name of the view.
    path : the folder that holds all there is of it. It is deleted with the view.
    """

    def __init__(self, view: str, path: str) -> None:
        self.view = view
        self.path = path

    @abstractmethod
    def open(
        self,
        session: SparkSession,
        declared: DeclaredTable,
        wanted: EpochCommit,
        recorded: Recorded,
        fence: Fence,
        *,
        is_first: bool,
    ) -> TargetWriter:
        """Open the table as the catalog knows it, or create it.

        Parameters
        ----------
        session : used for this one commit.
        recorded : what readers see of the view today, also of an earlier generation.
        fence : raises where the run must not change the table any more.
        is_first : this is the first epoch of its generation.

        Raises
        ------
        StateError : the table is damaged, or another program changed its rows.
        """

    @abstractmethod
    def driver_can_write(self, declared: DeclaredTable) -> bool:
        """Whether the driver can write a table that is declared so."""

    @abstractmethod
    def found(self, declared: DeclaredTable, version: int, *, replaces: bool = False) -> TargetFound:
        """The table at a version, as an epoch would find it."""

    @abstractmethod
    def rows(self, session: SparkSession, version: int) -> DataFrame:
        """All rows at a version, with the hidden key as the last column."""

    def held_rows(self, version: int, columns: Sequence[str], most_bytes: int | None = None) -> pa.Table | None:
        """Some columns at a version.

        ``None`` where only Spark can read them, or they are larger.
        """
        return None

    def register(self, session: SparkSession, name: str) -> None:
        """Give the table a name in Spark's catalog, unless it has that.

        Parameters
        ----------
        name : as SQL writes it.
        """
        return

    def totals(self, version: int) -> tuple[int, int] | None:
        """Bytes and rows at a version; ``None`` if that takes reading them."""
        return None

    def why_unreadable(self, version: int) -> str | None:
        """The reason why a version cannot be read; ``None`` if it can."""
        return None

    def commits(self) -> list[tuple[int, EpochCommit]]:
        """Versions and identities of epochs, oldest first, without those that were undone.

        Those that the catalog remembers need not be among them.
        """
        return []

    def problem(self, recorded: Recorded) -> str | None:
        """Damage, or changes by other writers, since the recorded commit, with the remedies."""
        return None

    def check_not_lost(self, recorded: Recorded) -> None:
        """Check at little cost that the recorded commit was not lost.

        Raises
        ------
        StateError : it was.
        """
        return

    def delete_unused_files(
        self, session: SparkSession, versions: Collection[int], hours: int
    ) -> tuple[StoredFiles, StoredFiles]:
        """Delete files that neither some versions nor the newest need.

        Parameters
        ----------
        hours : what was replaced no longer ago than this stays as well.

        Returns
        -------
        The files there were before, and after.
        """
        return NO_FILES, NO_FILES
