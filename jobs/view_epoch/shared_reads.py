"""Facts and changes of sources that the views of a run share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.entries import EpochEntry, SourceEntry, ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.operators.side_by_side import Once
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Scan, walk
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.jobs.sources.pins import ChangeRange, Pin
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.jobs.sources.source_index import SourceIndex
from relstate_dagster.jobs.view_epoch.plan import RunLimits, run_limits
from relstate_dagster.state_lib.collected import HeldRows, held_rows
from relstate_dagster.state_lib.constants import MADE_BY_SOURCES, ROW_ID, WEIGHT


@dataclass(frozen=True, slots=True)
class ReadKey:
    """Identity of a read: source, both pins, and the columns that the source makes."""

    source: str
    since: str
    until: str
    generated_columns: frozenset[str]


@dataclass(slots=True)
class SharedReads:
    """Changes that several views of an epoch read.

    The first view reads them, and the driver holds them for the others.

    Parameters
    ----------
    columns : the columns that some view needs of each read, in no particular order, where at least two views share it.
    limits : of what is held.
    """

    columns: dict[ReadKey, frozenset[str]] = field(default_factory=dict)
    limits: RunLimits = field(default_factory=run_limits)
    _reads: Once = field(default_factory=Once)

    @classmethod
    def of(cls, state: CatalogState, epoch: EpochEntry, views: Iterable[ViewEntry]) -> SharedReads:
        """Reads that the views of an epoch share."""
        wanted: dict[ReadKey, list[set[str]]] = {}
        for view in views:
            since = None if view.last_epoch is None else state.epochs.get(view.last_epoch)
            if since is None or view.plan is None:
                continue
            for name, columns in scanned_columns(view).items():
                if name in since.pins and name in epoch.pins:
                    key = ReadKey(name, since.pins[name].identity, epoch.pins[name].identity, made_columns(view, name))
                    wanted.setdefault(key, []).append(columns)
        return cls({key: frozenset().union(*of_views) for key, of_views in wanted.items() if len(of_views) > 1})

    def columns_of(self, key: ReadKey, own: Collection[str]) -> frozenset[str]:
        """Columns that a view needs of a read, or any view that shares it."""
        return self.columns.get(key, frozenset()) | set(own)

    def changes(
        self,
        spark: SparkSession,
        key: ReadKey,
        changed_bytes: int,
        columns: Iterable[str],
        read: Callable[[], DataFrame | None],
    ) -> DataFrame | None:
        """The changes, as :meth:`.jobs.sources.protocol.Source.changes` gives them, with at least some columns.

        Parameters
        ----------
        spark : the session of the frame that is returned.
        changed_bytes : of the files that hold the changes.
        columns : those that the view needs.
        read : reads them all; called once for all views that share them.
        """
        if key not in self.columns or changed_bytes > self.limits.shared_bytes:
            return read()
        held = self._reads.once(key, lambda: _held(read(), self.columns[key], self.limits.driver.collected_bytes))
        if held is None:
            return read()
        wanted = set(columns)
        names = [name for name in held.schema.names if name in wanted or name == WEIGHT]
        return held.select(names).frame(spark)


@dataclass(slots=True)
class SourceReads:
    """Facts about sources that a run has read.

    Parameters
    ----------
    ranges : what was found to have changed in a source between two pins.
    shared : the changes that several views read.
    """

    ranges: dict[tuple[str, Pin, Pin, bool], ChangeRange] = field(default_factory=dict)
    shared: SharedReads = field(default_factory=SharedReads)
    _sources: dict[str, Source] = field(default_factory=dict)
    _indexes: dict[tuple[str, str], SourceIndex] = field(default_factory=dict)

    def source(self, warehouse: Warehouse, entry: SourceEntry) -> Source:
        """The reader of a registered source, which opens each of its versions once."""
        return self._sources.setdefault(entry.name, warehouse.source(entry))

    def range(self, source: Source, since: Pin, until: Pin, *, append_only: Callable[[], bool]) -> ChangeRange:
        """As :meth:`.jobs.sources.protocol.Source.check_range`, once."""
        place = (source.name, since, until, append_only())
        if place not in self.ranges:
            self.ranges[place] = source.check_range(since, until, append_only=place[-1])
        return self.ranges[place]

    def index(self, warehouse: Warehouse, entry: SourceEntry, column: str) -> SourceIndex:
        """As :meth:`.jobs.catalog.warehouse.Warehouse.index`, opened once."""
        return self._indexes.setdefault((entry.name, column), warehouse.index(entry, column))


def scanned_columns(view: ViewEntry) -> dict[str, set[str]]:
    """The columns that a view's plan scans of each relation."""
    found: dict[str, set[str]] = {}
    assert view.plan is not None
    for node in walk(view.plan):
        if isinstance(node, Scan):
            found.setdefault(node.relation, set()).update(node.column_names)
    return found


def made_columns(view: ViewEntry, name: str) -> frozenset[str]:
    """Columns that a view reads and its source makes.

    No file has them.
    """
    scanned = scanned_columns(view).get(name, set()) & MADE_BY_SOURCES
    if scanned <= {ROW_ID}:
        return frozenset(scanned)
    assert view.plan is not None
    # In which commit a row came takes the whole log to say.
    return frozenset(scanned & {ROW_ID, *used_columns(view.plan).get(name, ())})


def _held(changes: DataFrame | None, columns: frozenset[str], most_bytes: int) -> HeldRows | None:
    """Rows of a change set, if the driver can hold them."""
    if changes is None:
        return None
    names = [name for name in changes.columns if name in columns]
    return held_rows(changes.select(*columns_of(names), WEIGHT), most_bytes)
