"""Relations that one view reads in one epoch: change sets, rows, sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.strict import refusal
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare.query_function import selects_all
from relstate_dagster.jobs.plan.nodes import Join, Scan, walk
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.jobs.sources.pins import ChangeRange
from relstate_dagster.jobs.view_epoch.findings import StateFound
from relstate_dagster.jobs.view_epoch.index_advice import IndexAdvice
from relstate_dagster.jobs.view_epoch.input import Input, ViewInput
from relstate_dagster.jobs.view_epoch.plan import AllRows, ViewSizes
from relstate_dagster.jobs.view_epoch.refresh_choice import may_recompute, nodes_with_state
from relstate_dagster.jobs.view_epoch.shared_reads import SourceReads, scanned_columns
from relstate_dagster.jobs.view_epoch.source_input import SourceInput
from relstate_dagster.jobs.view_epoch.steps import Read
from relstate_dagster.state_lib.constants import TABLE_ID, WEIGHT
from relstate_dagster.state_lib.delta_layout import is_plain_layout
from relstate_dagster.state_lib.errors import PlanError, StateError
from relstate_dagster.state_lib.lake.statistics import DataFile, byte_count, row_count
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.row_encoding.ddl import parse_type
from relstate_dagster.state_lib.row_sums import columns_of_schema, consolidate
from relstate_dagster.state_lib.row_width import RowWidth
from relstate_dagster.state_lib.slots import assign_slots
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_files import StateFiles
from relstate_dagster.state_lib.table_schema import StateKind

_NOTHING: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({})


@dataclass
class EpochInputs:
    """The relations that one view reads at one epoch (:class:`.jobs.operators.relations.Relations`).

    Parameters
    ----------
    view : kept with the date of the epoch as a constant, where its rows depend on it.
    versions : the versions of the upstream views in this epoch, and in the epochs before.
    reads : what the views of a run share of what they read of sources.
    session : that frames belong to; none are asked for without one.
    advice : what is noted of costly lookups.
    """

    warehouse: Warehouse
    catalog: CatalogState
    view: ViewEntry
    epoch: EpochEntry
    versions: Mapping[str, ViewVersions] = field(default_factory=dict)
    reads: SourceReads = field(default_factory=SourceReads)
    session: SparkSession | None = None
    advice: IndexAdvice = field(default_factory=IndexAdvice)
    _inputs: dict[str, Input] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.view = self.view.at(self.epoch.instant)

    def within(self, session: SparkSession) -> EpochInputs:
        """The same inputs, as frames of another session."""
        bound = copy(self)
        bound.session = session
        return bound

    @property
    def spark(self) -> SparkSession:
        """The session that frames belong to."""
        assert self.session is not None
        return self.session

    @property
    def since(self) -> EpochEntry | None:
        """The epoch that this one builds on; as :meth:`.jobs.catalog.state.CatalogState.last_of`."""
        return self.catalog.last_of(self.view)

    @property
    def is_backfill(self) -> bool:
        """Whether nothing of the view has been computed yet."""
        return self.since is None

    @cached_property
    def used_columns(self) -> dict[str, set[str]]:
        """At least the columns that the view reads of each relation."""
        assert self.view.plan is not None
        return used_columns(self.view.plan)

    def of(self, name: str) -> Input:
        """A relation of a name."""
        kind = ViewInput if name in self.catalog.views else SourceInput
        return self._inputs.setdefault(name, kind(self, name))

    def source(self, name: str) -> SourceInput:
        """The source of a name."""
        found = self.of(name)
        assert isinstance(found, SourceInput)
        return found

    # -- relations, for operators -----------------------------------------------------------------------------------

    def changes(self, name: str) -> DataFrame | None:
        """The change set of a source or an upstream view.

        For a view that was left behind it is netted first. So a row that was inserted and deleted in between, perhaps the
        one that could not be computed, is not read.
        """
        changes = self.of(name).changes(self.spark)
        if changes is None or self.since is None or self.view.problem is None:
            return changes
        read = scanned_columns(self.view)[name]
        columns = [column for column in columns_of_schema(changes.schema) if column.name in read]
        # Computed here and now: Spark would push what a query computes of a row below the sum.
        return local_checkpoint(consolidate(changes, columns))

    def rows(self, name: str, lookup_keys: LookupKeys | None) -> DataFrame:
        """Rows of a relation as of this epoch, with weights.

        With keys, those within their values at least.
        """
        return self.of(name).rows(self.spark, lookup_keys)

    def bag(self, name: str, columns: Collection[str]) -> DataFrame:
        """All rows of a relation as of this epoch, without weights."""
        return self.of(name).bag(self.spark, columns)

    def rows_between(self, name: str, column: str, lower: Column, upper: Column) -> DataFrame:
        """Rows of a source with a column between two values, with weights."""
        rows = self.of(name).snapshot(self.spark)
        return rows.where(F.col(quoted(column)).between(lower, upper)).withColumn(WEIGHT, F.lit(1).cast("bigint"))

    def provably_absent_before(self, name: str, lookup_keys: LookupKeys) -> bool:
        """Whether no row of the last epoch is within some values, if known."""
        return self.of(name).provably_absent_before(lookup_keys)

    def row_count(self, name: str) -> int | None:
        """Rows of a relation as of this epoch; ``None`` if unknown."""
        return self.of(name).row_count()

    def rows_read(self, name: str, lookup_keys: LookupKeys | None) -> float | None:
        """About how many rows a lookup of some values reads, if known."""
        return self.of(name).rows_read(lookup_keys)

    def sample(self, name: str) -> tuple[DataFrame, int] | None:
        """Some rows of a relation, with weights, and their number, if known."""
        return self.of(name).sample(self.spark)

    def come_once(self) -> bool:
        """Whether no relation has rows that cancel, or a key twice.

        A view that has changed since it was built may have them in its log.
        """
        return all(self.of(name).comes_once() for name in self.view.reads)

    def gives_ids(self, name: str) -> bool:
        """Whether rows get ``_row_id`` as they come in: those of sources do."""
        return name in self.catalog.sources

    # -- sizes and advice, from logs alone ---------------------------------------------------------------------------

    def total_bytes(self) -> int:
        """Bytes of all that the view reads as of this epoch, as files."""
        return sum(read.bytes for read in self._bags())

    def total_values(self) -> int:
        """Values of all that the view reads as of this epoch: rows times columns."""
        return sum(read.row_count * read.width.columns for read in self._bags())

    def check(self) -> dict[str, ChangeRange]:
        """Changes of sources; raises before anything is written if one is unreadable.

        Raises
        ------
        PlanError : all rows would be computed of a strict view, to fill state that it does not have.
        """
        if self.since is None:
            self._all_rows()
            return {}
        self._check_strict()
        sources = [source for source in map(self.of, self.view.reads) if isinstance(source, SourceInput)]
        return {source.name: source.range(source.since) for source in sources if source.since is not None}

    def planned_reads(self, moved: Mapping[str, tuple[int, int]] = _NOTHING) -> tuple[Read, ...]:
        """Read steps of this epoch.

        Raises as :meth:`check` does.

        Parameters
        ----------
        moved : rows that upstream views have inserted and deleted since the view's last epoch, where a run knows it.
        """
        if self.is_backfill:
            return self._all_rows()
        changes = tuple(self.of(name).read_of_change(moved.get(name)) for name in self.view.reads)
        return (*changes, *(self.of(name).read_of_all() for name in self._read_by_unfilled()))

    def planned_sizes(
        self,
        files: StateFiles,
        state_version: int | None,
        seen: ViewVersions | None,
        moved: Mapping[str, tuple[int, int]] = _NOTHING,
        *,
        is_committed: bool = False,
        is_state_dropped: bool = False,
    ) -> ViewSizes:
        """Sizes of the view's epoch before it is computed.

        Parameters
        ----------
        files, state_version : of the view's state, up to which version; ``None``: there is none yet.
        seen : what readers see of the view.
        moved : as of :meth:`planned_reads`.
        is_committed : an earlier try has committed the change set: nothing is read of what the view reads.
        is_state_dropped : it has computed all rows, and kept no state.

        Raises
        ------
        SourceError : a source's changes cannot be read.
        """
        view, shown = self.view, (seen or ViewVersions()).view_version
        is_first = view.last_epoch is None
        replaces = is_first and shown is not None
        only_inserts = view.plan.append_only or (is_first and not replaces)
        known = ViewSizes(
            self.is_backfill,
            () if is_committed else self.planned_reads(moved),
            only_inserts=only_inserts,
            replaces=replaces,
            is_committed=is_committed,
            is_slice=is_first and not self.is_backfill and not is_committed,
            driver_writes_state=is_plain_layout(assign_slots([desc.schema for desc in view.tables])),
            driver_writes_view=self.warehouse.target(view.name).driver_can_write(view.declared_table),
        )
        if is_committed:
            there = files.at(state_version)
            dropped = _tables_of_nodes(view, state_found(view, there)) if is_state_dropped else ()
            return replace(known, looked_up_rows=_rows_of(there), dropped_state=dropped)
        if self.is_backfill:
            return known
        state, in_place = files.at(state_version), self._in_place_files()
        found = state_found(view, state)
        all_rows = self._all_rows_sizes(found, known, shown) if self._may_recompute else None
        if self._changed_date is not None and all_rows is None:
            raise PlanError(
                f"view {view.name}: {self._changed_date}, and its rows cannot be computed from those that it reads any more; "
                f"rebuild it with --full-refresh {view.name}"
            )
        recomputed = [t.table_id for t in view.tables if t.schema.kind is StateKind.MATERIALIZED_INPUT]
        return replace(
            known,
            recomputed_rows=sum(found.rows[table_id] for table_id in recomputed),
            state_bytes=byte_count(state),
            in_place_bytes=byte_count(in_place),
            looked_up_rows=_rows_of(state) + _rows_of(in_place),
            state=found,
            unfilled=self._unfilled(found),
            all_rows=all_rows,
            changed_date=self._changed_date,
        )

    def advice_lines(self) -> tuple[str, ...]:
        """Advice of an epoch: new columns of sources, and indexes that would help."""
        selected = [name for name in self.view.reads if name in self.catalog.sources and selects_all(self.view.query)]
        added = {name: self.source(name).unread_new_columns() for name in selected}
        new = [
            f"source {name} has new columns ({', '.join(columns)}): where view {self.view.name} selects *, it has them once it "
            f"is rebuilt with --full-refresh {self.view.name}"
            for name, columns in added.items()
            if columns
        ]
        return (*new, *self._advice_on_sources(), *self.advice.lines())

    def _advice_on_sources(self) -> Iterator[str]:
        """Advice to read changes of sources more cheaply."""
        for name in self.view.reads:
            source = self.of(name)
            if isinstance(source, SourceInput) and source.since is not None:
                net = source.range(source.since).net
                if net is not None and net.advice:
                    yield net.advice

    @property
    def _changed_date(self) -> str | None:
        return None if self.epoch.instant is None else self.catalog.changed_date(self.view, self.epoch.instant)

    @cached_property
    def _may_recompute(self) -> bool:
        """Whether the epoch may compute all rows: not where only some nodes have no state."""
        may = may_recompute(self.view, self.catalog.sources)
        return may and (not self.view.unfilled or set(self.view.unfilled) == set(nodes_with_state(self.view)))

    @property
    def _filled_alone(self) -> frozenset[int]:
        """Nodes without state that are filled while the others go on."""
        return frozenset() if self._may_recompute else frozenset(self.view.unfilled)

    def _read_by_unfilled(self) -> list[str]:
        """The relations below nodes whose state is filled in this epoch."""
        new = [found.node for found in self.view.planned.stateful.nodes if found.id in self._filled_alone]
        return sorted({scan.relation for node in new for scan in walk(node) if isinstance(scan, Scan)})

    def _all_rows_sizes(self, state: StateFound, known: ViewSizes, shown: int | None) -> AllRows:
        """Sizes of all that the view reads and has.

        Parameters
        ----------
        shown : the version of its published table.
        """
        view, own = self.view, self.view.tables[-1].table_id
        flows = {} if view.rows is None else view.rows.by_node(view.plan)
        came_in = {node.relation: sum(flow) for node, flow in flows.items() if isinstance(node, Scan)}
        read_all = cache(self._bags)

        def count() -> int:
            found = None if shown is None else self.warehouse.target(view.name).totals(shown)
            return state.rows[own] if found is None else found[1]

        return AllRows(
            read_all,
            cache(count),
            width=RowWidth.of(parse_type(view.plan.field_named(o.column).data_type) for o in view.plan.output),
            last_in=sum(came_in.values()),
            last_out=sum(flows.get(view.plan, (0, 0))),
            keeps_input=any(table.schema.kind is StateKind.MATERIALIZED_INPUT for table in view.tables),
            unfilled=frozenset(view.unfilled),
            state_tables=_tables_of_nodes(view, state),
            slower=view.costs.cheaper_in_full(known.changed_bytes, lambda: sum(read.bytes for read in read_all())),
        )

    def _check_strict(self) -> None:
        if self.view.is_strict and self.view.unfilled:
            raise refusal(self.view.name, "an earlier epoch computed all of its rows and kept no state, which is to be filled")

    def _unfilled(self, state: StateFound) -> frozenset[int]:
        """Nodes whose state is filled in this epoch, while the others go on.

        Raises
        ------
        PlanError : the view is strict.
        StateError : the state of one has rows, or it is the view itself.
        """
        self._check_strict()
        wanted, nodes = self._filled_alone, self.view.planned.stateful.nodes
        full = [t.table_id for n in nodes if n.id in wanted for t in n.tables if state.rows[t.table_id]]
        if full or nodes[-1].id in wanted:
            reason = f"state tables {full} have rows" if full else "the published table has the rows of all epochs"
            raise StateError(
                f"view {self.view.name}: a part of its state cannot be filled: {reason}; rebuild with --full-refresh"
            )
        return wanted

    def _all_rows(self) -> tuple[Read, ...]:
        return tuple(self.of(name).read_of_all() for name in self.view.reads)

    def _bags(self) -> tuple[Read, ...]:
        return tuple(self.of(name).read_of_bag() for name in self.view.reads)

    def _in_place_files(self) -> tuple[DataFile, ...]:
        """The files of the sources that joins look rows up in."""
        assert self.view.plan is not None
        sides = (
            side
            for join in walk(self.view.plan)
            if isinstance(join, Join)
            for side, there in ((join.left, join.left_in_place), (join.right, join.right_in_place))
            if there
        )
        names = {scan.relation for side in sides for scan in walk(side) if isinstance(scan, Scan)}
        return tuple(file for name in sorted(names - self.catalog.views.keys()) for file in self.source(name).files.files)


def _tables_of_nodes(view: ViewEntry, state: StateFound) -> tuple[int, ...]:
    """State tables with rows, without the view's own."""
    return tuple(table.table_id for table in view.tables[:-1] if state.rows[table.table_id])


def state_found(view: ViewEntry, files: Sequence[DataFile]) -> StateFound:
    """Bytes and rows of a view's state tables, out of the files of its state."""
    # In one pass: a large state has many thousand files.
    size, rows = ({table.table_id: 0 for table in view.tables} for _ in range(2))
    for file in files:
        table_id = file.partition[TABLE_ID]
        size[table_id] += file.bytes
        rows[table_id] += file.rows
    return StateFound(
        bytes=size,
        rows=rows,
        merged_rows={int(table_id): rows for table_id, rows in view.merged_rows.items()},
    )


def _rows_of(files: Sequence[DataFile]) -> int:
    """Row count of files; estimated as one a byte if the log has none."""
    rows = row_count(files)
    return byte_count(files) if rows is None else rows
