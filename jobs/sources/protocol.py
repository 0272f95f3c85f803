"""The protocol of sources: relations of an epoch that are no views.

An epoch pins each source once, asks what changed between two pins, and reads that. Nothing else is known of a source.
``delta_source.py`` implements the protocol; ``registry.py`` says which class opens which kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.sources.file_layout import FileLayout
from relstate_dagster.jobs.sources.pins import ChangeRange, Pin
from relstate_dagster.jobs.sources.snapshot_files import SnapshotFiles
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import RelstateError, SourceError
from relstate_dagster.state_lib.lake.log import TableFacts

#: Sources that are looked at side by side.
_LOOKED_AT_ONCE: Final = 16


class Source(ABC):
    """One source of a warehouse.

    Versions are numbers that grow. What a pin names never changes: to read it twice gives the same rows. Every method but
    those that return frames works without Spark. A source without files leaves :meth:`files` and :meth:`layout` as they are
    here; lookups then read all of its rows.

    Parameters
    ----------
    name : identifier that views use.
    path : where it lies.
    key : primary key columns; empty for none.
    """

    def __init__(self, name: str, path: str, key: Sequence[str] = ()) -> None:
        self.name = name
        self.path = path
        self.key = tuple(key)

    @abstractmethod
    def facts(self, version: int | None = None) -> TableFacts:
        """Columns, identity and newest version, or the columns at a version."""

    @abstractmethod
    def pin(self, previous: Pin | None, until: int | None = None) -> Pin:
        """Pin the newest version, or one that is to be read at most.

        Parameters
        ----------
        previous : the last pin, which is returned again if nothing was committed since.
        """

    @abstractmethod
    def check_range(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        """Check that the changes between two pins can be read, and measure them.

        Parameters
        ----------
        append_only : rows are declared never to change.

        Raises
        ------
        SourceError : they cannot.
        """

    @abstractmethod
    def changes(
        self,
        spark: SparkSession,
        since: Pin,
        until: Pin,
        found: ChangeRange,
        generated_columns: Collection[str] = (),
        columns: Collection[str] | None = None,
    ) -> DataFrame | None:
        """The change set between two pins; ``None`` if there is none.

        The columns and the weight.

        Parameters
        ----------
        found : as :meth:`check_range` found them.
        generated_columns : columns that the source makes for its rows (:data:`.jobs.plan.relation.MADE_BY_SOURCES`).
        columns : those that are needed; others may be left out. ``None`` for all.
        """

    @abstractmethod
    def all_rows(self, spark: SparkSession, pin: Pin, generated_columns: Collection[str] = ()) -> DataFrame:
        """Every row as of a pin, as an insertion.

        With some of the columns that sources make, if asked for.
        """

    def changes_by_commit(self, spark: SparkSession, since: Pin, until: Pin, found: ChangeRange) -> DataFrame | None:
        """As :meth:`changes`, with the version of the commit that made each change.

        Raises
        ------
        SourceError : the source does not know that.
        """
        raise SourceError(f"source {self.name} ({self.path}) does not say which commit made which change")

    def snapshot(self, spark: SparkSession, pin: Pin) -> DataFrame:
        """The rows as of a pin, without weights and hidden columns."""
        rows = self.all_rows(spark, pin)
        return rows.where(f"{WEIGHT} > 0").drop(WEIGHT)

    def read_strategy(self, found: ChangeRange, until: Pin, generated_columns: Collection[str] = ()) -> str:
        """Description of :meth:`changes`' way to read."""
        return "its changes" if found.rows_inserted or found.rows_deleted else "nothing changed"

    def check_version(self, version: int) -> None:
        """Raise unless a version can be read.

        Raises
        ------
        SourceError : there is no such version, or not any more.
        """
        newest = self.facts().version
        if version > newest:
            raise SourceError(f"source {self.name} ({self.path}) has no version {version}: the newest is {newest}")

    def exists(self) -> bool:
        """Whether its table is there, as far as that is known without opening it."""
        return True

    def why_unreadable(self, pin: Pin) -> str | None:
        """Reason why the rows as of a pin are unreadable; ``None`` if they are."""
        try:
            self.totals(pin)
        except SourceError as error:
            return str(error)
        return None

    def newest_version(self, least: int | None = None) -> int:
        """The newest version; it is ``least`` or a later one, if that is given."""
        return self.facts().version

    def totals(self, pin: Pin | None = None) -> tuple[int, int | None]:
        """Bytes and rows as of a pin, by default the newest version.

        Rows are ``None`` if unknown.
        """
        return 0, None

    def files(self, pin: Pin) -> SnapshotFiles:
        """Files with the rows as of a pin.

        None if only the source can read its rows.
        """
        return SnapshotFiles(None, ())

    def layout(self, version: int) -> FileLayout | None:
        """Layout of the files; ``None`` if only the source can read them."""
        return None


def insertions(rows: DataFrame) -> DataFrame:
    """Rows with the weight of insertions."""
    return rows.withColumn(WEIGHT, F.lit(1).cast("bigint"))


def resolve_pins(
    sources: Mapping[str, Source], last: Mapping[str, Pin], until_version: Mapping[str, int] = MappingProxyType({})
) -> tuple[dict[str, Pin], dict[str, Exception]]:
    """Look once at sources, all at the same time, without Spark.

    Parameters
    ----------
    last : what was pinned of them before.
    until_version : the versions that some of them are to be read up to at most.

    Returns
    -------
    The pins of those that can be looked at, and the errors of the others.
    """
    pins, errors = dict[str, Pin](), dict[str, Exception]()
    if not sources:
        return pins, errors
    with ThreadPoolExecutor(max_workers=min(_LOOKED_AT_ONCE, len(sources))) as pool:
        under_way = {
            name: pool.submit(source.pin, last.get(name), until_version.get(name)) for name, source in sorted(sources.items())
        }
        for name, looking in under_way.items():
            try:
                pins[name] = looking.result()
            except (RelstateError, OSError) as error:
                errors[name] = error
    return pins, errors
