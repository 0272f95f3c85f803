"""Entries of the catalog, as plain values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Final

from relstate_dagster.jobs.catalog.costs import Costs
from relstate_dagster.jobs.catalog.expiry import Expiry
from relstate_dagster.jobs.catalog.plans import Planned
from relstate_dagster.jobs.catalog.watermarks import Watermarks
from relstate_dagster.jobs.declare.catalog_tables import table_parts, table_text
from relstate_dagster.jobs.declare.model import (
    PUBLISH_ON_CHANGE,
    PUBLISH_TABLE,
    STRICT,
    FileFolder,
    declared_policy,
    is_by_days,
    planned_policy,
)
from relstate_dagster.jobs.declare.query_function import Query
from relstate_dagster.jobs.declare.state_ttl import ttl_of
from relstate_dagster.jobs.declare.table_properties import table_properties
from relstate_dagster.jobs.declare.watermarks import Watermark, watermark_of
from relstate_dagster.jobs.engine.instants import date_in, start_of_day
from relstate_dagster.jobs.plan.epoch_rows import EpochRows
from relstate_dagster.jobs.plan.nodes import Materialize, PlanNode
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.targets.chain import Recorded
from relstate_dagster.jobs.targets.declared_table import DeclaredTable, TableLayout
from relstate_dagster.state_lib.table_schema import StateTableDesc


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A registered source: place, key, indexes, and whether the warehouse made it.

    ``is_changelog`` is whether its rows, which are only ever appended, replace and delete earlier ones of their key, as a view
    over it has it. ``folder`` is the folder of files whose rows are appended to it as they come. ``watermark`` is how far
    behind its newest row others may come (:mod:`.jobs.declare.watermarks`). ``table`` is its name in Spark's catalog, where
    that says where it lies; ``path`` is then where it was last. ``is_iceberg`` is whether it is an Iceberg table.
    """

    name: str
    path: str
    primary_key: tuple[str, ...] = ()
    append_only: bool = False
    managed: bool = False
    indexes: tuple[str, ...] = ()
    is_changelog: bool = False
    folder: FileFolder | None = None
    watermark: str | None = None
    table: str | None = None
    is_iceberg: bool = False

    @property
    def kind(self) -> str:
        """Name of the kind that opens it (:mod:`.jobs.sources.registry`)."""
        if self.is_iceberg:
            return "iceberg"
        return "files" if self.folder is not None else "changelog" if self.is_changelog else "delta"

    @property
    def watermarked(self) -> Watermark | None:
        """The declared watermark; ``None`` without one."""
        return None if self.watermark is None else watermark_of(self.watermark, f"source {self.name}")


def is_same_source(one: SourceEntry | None, other: SourceEntry) -> bool:
    """Whether two declarations of a source are equal but for the case of columns."""

    def lower(columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(column.lower() for column in columns)

    if one is None:
        return False
    named = replace(one, primary_key=other.primary_key, indexes=other.indexes)
    keys = [(lower(entry.primary_key), lower(entry.indexes)) for entry in (one, other)]
    return named == other and keys[0] == keys[1]


def with_source_options(one: SourceEntry, other: SourceEntry) -> SourceEntry:
    """A source with what another declaration of it may say otherwise, without other rows."""
    return replace(one, indexes=other.indexes, watermark=other.watermark, table=other.table)


def managed_path(root: str, name: str, folder: FileFolder | None = None) -> str:
    """Path of a managed source's table.

    Each declaration of a folder of files has a table of its own.
    """
    return f"{root}/sources/{name}" if folder is None else f"{root}/sources/{name}-{folder.digest}"


@dataclass(frozen=True, slots=True)
class PlainViewEntry:
    """A view that is inlined where it is used."""

    name: str
    query: Query


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a view failed, and the epoch that it could not reach.

    The epoch is ``None`` if it was not begun.

    ``pins`` are the versions of its sources at that try, as :attr:`Pin.identity`: the same ones give the same error again.
    """

    reason: str
    epoch: int | None = None
    pins: Mapping[str, str] = field(default_factory=dict)


#: The release of Spark whose plans do not name it: all that were made before others were noted.
NOTED_SINCE: Final = "4.2"


def new_generation() -> str:
    """A unique name for one life of a view's state.

    Dropped, restored and rebuilt views never share a folder.
    """
    return f"g{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """A materialized view and how far it has come.

    ``epochs`` are those it has reached, newest last; ``settings`` the session settings its plan depends on. ``planned`` has
    its plan and state tables, and ``vnode_counts`` the vnodes of tables that have grown, by table id.
    ``first_vnode_counts`` has their vnodes when this generation began, if other than planned. ``planned_on`` is a digest of
    the relations that it was planned on: it is planned again before a backfill on others. ``plan_version`` is that of the
    planner (0: of before it was noted), and ``planned_on_spark`` the release of Spark that analysed the query.
    ``inlined`` are the plain views that its query reads, as they were then, each after
    those that it reads. ``generation`` names a life of the state, from one backfill to the next. ``merged_rows`` has the
    rows of each state table when it was last compacted, by table id. ``functions`` are the user's own that the query calls.
    ``costs`` is what its epochs have cost, where that may decide how the next one is computed. ``layout`` is how the
    published table is laid out. ``expiry`` is how old its state is, where that expires. ``watermarks`` are those by which
    groups may have been dropped from it. ``problem`` is why it was left behind by the last run that tried. ``built_until``
    is the epoch of its last slice, while it is built in slices and has reached no epoch. ``rows`` are those that went
    through its plan in the last epoch that changed it. ``unfilled`` are the ids of plan nodes whose state is empty and is
    filled in the next epoch, while the others go on (:mod:`.jobs.operators.filling`).
    """

    name: str
    query: Query
    strategy: str
    reason: str | None
    planned: Planned
    reads: tuple[str, ...]
    settings: Mapping[str, str]
    generation: str = field(default_factory=new_generation)
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    epochs: tuple[int, ...] = ()
    vnode_counts: Mapping[str, int] = field(default_factory=dict)
    first_vnode_counts: Mapping[str, int] = field(default_factory=dict)
    merged_rows: Mapping[str, int] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    costs: Costs = field(default_factory=Costs)
    planned_on: str = ""
    plan_version: int = 0
    planned_on_spark: str = NOTED_SINCE
    inlined: Mapping[str, Query] = field(default_factory=dict)
    layout: TableLayout = field(default_factory=TableLayout)
    expiry: Expiry = field(default_factory=Expiry)
    watermarks: Watermarks = field(default_factory=dict)
    problem: Problem | None = None
    built_until: EpochEntry | None = None
    rows: EpochRows | None = None
    unfilled: tuple[int, ...] = ()

    @property
    def plan(self) -> Materialize:
        """The view's plan."""
        return self.planned.plan

    def date_at(self, instant: datetime) -> date:
        """The date in the view at an instant, as ``current_date()`` gives it."""
        return date_in(self._zone, instant)

    def now_at(self, instant: datetime | None) -> datetime | None:
        """The time in the view at an instant, as ``now()`` gives it."""
        return instant if instant is None or not is_by_days(self.properties) else start_of_day(self._zone, instant)

    @property
    def _zone(self) -> str:
        return self.settings["spark.sql.session.timeZone"]

    def at(self, instant: datetime | None) -> ViewEntry:
        """The view at an instant, with the date as a constant of its plan.

        Not for storing.
        """
        return self if instant is None else replace(self, planned=self.planned.on(lambda: self.date_at(instant)))

    @property
    def tables(self) -> tuple[StateTableDesc, ...]:
        """Its state tables, with the vnodes that they have now."""
        return tuple(map(self._as_grown, self.planned.tables))

    @property
    def node_tables(self) -> dict[PlanNode, tuple[StateTableDesc, ...]]:
        """State tables of each plan node, children first, with current vnode counts."""
        return {found.node: tuple(map(self._as_grown, found.tables)) for found in self.planned.stateful.nodes}

    def _as_grown(self, planned: StateTableDesc) -> StateTableDesc:
        """A planned state table with the vnodes that it has now."""
        name, count = str(planned.table_id), planned.vnode_count
        now, first = self.vnode_counts.get(name, count), self.first_vnode_counts.get(name, count)
        return replace(planned, vnode_count=now, first_vnode_count=first)

    @property
    def last_epoch(self) -> int | None:
        """The newest epoch that the view has reached; ``None`` before its backfill."""
        return self.epochs[-1] if self.epochs else None

    @property
    def refresh_policy(self) -> str:
        """``auto`` (the default), ``incremental`` or ``full``."""
        return planned_policy(self.properties)

    @property
    def is_strict(self) -> bool:
        """Whether only a full refresh by name computes all rows of the built view."""
        return declared_policy(self.properties) == STRICT

    @property
    def application(self) -> str:
        """The application of the transactions by which this generation is written."""
        return f"relstate:{self.name}:{self.generation}"

    @property
    def declared_table(self) -> DeclaredTable:
        """The published table by its declaration."""
        columns = tuple((o.name, self.plan.field_named(o.column).data_type) for o in self.plan.output)
        properties, is_restored = table_properties(self.properties), self.properties.get(PUBLISH_ON_CHANGE) == "restore"
        return DeclaredTable(self.name, self.application, columns, self.layout, properties, self.comment, is_restored)

    @property
    def published_parts(self) -> tuple[str, ...]:
        """Parts of the published table's name in Spark's catalog; none without such a name."""
        name = self.properties.get(PUBLISH_TABLE)
        return () if name is None else table_parts(name, f"view {self.name}", PUBLISH_TABLE)

    @property
    def published_as(self) -> str | None:
        """Name of the published table in Spark's catalog, as SQL writes it; ``None`` without one."""
        return table_text(self.published_parts) or None

    @property
    def state_ttl(self) -> timedelta | None:
        """Time to live of untouched state; ``None`` for ever."""
        return ttl_of(self.properties, f"view {self.name}")

    def reached(self, epoch: int, instant: datetime | None = None, *, keep: int = 32) -> ViewEntry:
        """The entry after one more epoch."""
        expiry = self.expiry if instant is None else self.expiry.after(epoch, instant, self.state_ttl)
        return replace(self, epochs=(*self.epochs, epoch)[-keep:], expiry=expiry, problem=None, built_until=None, unfilled=())

    def restarted(self) -> ViewEntry:
        """The entry before a backfill, in a new generation.

        Its tables begin with their current vnode counts.
        """
        first = dict(self.vnode_counts)
        return replace(
            self,
            epochs=(),
            generation=new_generation(),
            merged_rows={},
            expiry=Expiry(),
            watermarks={},
            problem=None,
            built_until=None,
            first_vnode_counts=first,
            rows=None,
            unfilled=(),
        )


def changed_date(view: ViewEntry, before: datetime | None, now: datetime | None) -> str | None:
    """Say that the date differs between two instants, for a view that depends on it."""
    if not view.plan.is_of_a_day or before is None or now is None:
        return None
    dates = view.date_at(before), view.date_at(now)
    return None if dates[0] == dates[1] else f"the date has changed from {dates[0]} to {dates[1]}"


@dataclass(frozen=True, slots=True)
class ViewVersions:
    """Delta versions of a view's state and published table at an epoch.

    ``None`` before the first.

    ``digest`` names the state commit, and ``published`` the one whose change set was published last (a commit without
    changes of the view publishes none). Both are in the commits themselves, so another commit of the same number is
    noticed.
    """

    state_version: int | None = None
    view_version: int | None = None
    digest: str = ""
    published: str = ""

    @property
    def state_commit(self) -> Recorded:
        """The commit of the state."""
        return Recorded(self.state_version, self.digest)

    @property
    def published_commit(self) -> Recorded:
        """The commit of the published table."""
        return Recorded(self.view_version, self.published)


@dataclass(frozen=True, slots=True)
class Slice:
    """Progress of a view with one of its slices: source, number, and bytes read.

    ``bytes`` of the source's ``total_bytes`` have been read once this slice is computed.
    """

    source: str
    number: int
    bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """An epoch: pinned sources, its views, and their versions.

    ``run_id`` names the run that began it. ``instant`` is what ``now()`` means in all of its views. ``slice`` is set where the
    epoch builds one slice of its single view
    (:mod:`.jobs.run.slices`): such an epoch is never complete, and no reader sees its rows.
    """

    epoch: int
    pins: Mapping[str, Pin]
    views: tuple[str, ...]
    run_id: str
    versions: Mapping[str, ViewVersions] = field(default_factory=dict)
    instant: datetime | None = None
    slice: Slice | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Views that a run has to itself.

    No other run computes, changes or drops them meanwhile.

    Parameters
    ----------
    id : of the holder, and of no other; ``run_id`` is how the run is called.
    doing : what for, in words.
    host, pid : the process that holds it.
    place : names the locks of its machine (:class:`.jobs.catalog.locking.HolderLocks`).
    until : when it ends by itself, unless it is renewed: a process that has died renews nothing.
    epoch : the one that the views are brought to; ``None`` where they are only to be left alone.
    ticket : of a holder that waits for the views, its place among those that wait: the catalog's version when it came. ``None``
        where it has them.
    """

    id: str
    run_id: str
    views: tuple[str, ...]
    doing: str
    host: str
    pid: int
    until: datetime
    epoch: EpochEntry | None = None
    place: str = ""
    ticket: int | None = None

    def __str__(self) -> str:
        waits = "" if self.ticket is None else "waiting for its turn at "
        return f"process {self.pid} on {self.host} (run {self.run_id}), which is {waits}{self.doing}"
