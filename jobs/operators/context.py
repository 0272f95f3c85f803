"""Context of an operator in an epoch: input change sets and state tables.

Operators only describe DataFrames; the epoch runner alone commits.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.util import inheritable_thread_target

from relstate_dagster.jobs.declare.kept_rows import EXTREME_ROWS, SPARE_ROWS, WINDOW_ROWS
from relstate_dagster.jobs.operators.one_pass import FusedColumns
from relstate_dagster.jobs.operators.relations import Relations
from relstate_dagster.jobs.operators.row_set import RowSet, RowSets
from relstate_dagster.jobs.operators.side_by_side import SideBySide
from relstate_dagster.jobs.plan.closing import Closing
from relstate_dagster.jobs.plan.consolidated import is_consolidated
from relstate_dagster.jobs.plan.new_state import NewState, Recompute
from relstate_dagster.jobs.plan.nodes import Aggregate, FullQuery, PlanNode
from relstate_dagster.jobs.planner.in_place import is_only_read
from relstate_dagster.state_lib.state_table import StateTable

T = TypeVar("T")


@dataclass(frozen=True)
class Closed:
    """Which groups of an aggregate are closed, and where their rows are.

    Parameters
    ----------
    closing : a column of the source, and the range of it that a group's rows have.
    condition : whether a group is closed, of rows with the group columns.
    """

    closing: Closing
    condition: Column


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """Result of one operator: its change set, and counts for the executor to add up.

    State rows are not a part of it: they are in the MemTables of the operator's state tables.

    Parameters
    ----------
    changes : the change set; ``None`` if nothing can have changed.
    late_rows : rows that came after a newer row of their key, or to a group that a watermark had closed.
    """

    changes: RowSet | None
    late_rows: int = 0


@dataclass(frozen=True, slots=True)
class PlanResult:
    """Results of all operators of a plan.

    Parameters
    ----------
    changes : the change set of the view; ``None`` if nothing can have changed.
    late_rows : of all operators.
    """

    changes: RowSet | None
    late_rows: int


class Pass(enum.Enum):
    """Rows that operators are run for (:mod:`.jobs.operators.filling`)."""

    CHANGES = "changes since the last epoch"
    ROWS_NOW = "all rows as of this epoch"
    ROWS_BEFORE = "all rows as of the last epoch"


@dataclass(slots=True)
class EpochContext:
    """One epoch of one view.

    Parameters
    ----------
    epoch : the epoch that is being computed.
    new_state : nodes whose state is empty and is filled in this epoch.
    recomputes : whether all rows are computed, and what becomes of the state; ``None`` where changes are.
    node_ids : the ids by which it names them.
    relations : what the view reads.
    tables : the state tables of each node, in the order of ``infer_state_tables``.
    row_sets : makes what operators give each other.
    full_query : runs a query in full and gives its difference to what the view holds.
    extreme_rows, spare_rows, window_rows : how many rows are kept apart, as the view's properties say.
    instant, last_instant : of this epoch and of the view's last one; what ``now()`` is.
    steps : runs what does not need each other at the same time, for as long as the operators run.
    fused_columns : state rows that change sets carry on their way to the view.
    changes : the change set of each node whose operator has run.
    strict : whether operators are checked at the cost of Spark jobs (:mod:`.jobs.operators.contracts`).
    may_have_expired : whether rows of the state may have expired (``state.ttl``), so that retractions find nothing.
    leaves_out_old_errors : whether the epoch is computed once more, for an error that only rows of before may have
        (:mod:`.jobs.operators.old_rows`).
    asked_for_by_joins : then, the values that nothing but joins asks for.
    closed : the aggregates with closed groups, whose state may have been dropped (``source.watermark``).
    runs_for : rows that operators are run for; other than changes, no operator finds rows in its state.
    rows_now : all rows of nodes with new state, where only a part of the plan is filled.
    """

    epoch: int
    new_state: NewState
    node_ids: Mapping[PlanNode, int]
    relations: Relations
    tables: Mapping[PlanNode, Sequence[StateTable]]
    row_sets: RowSets
    full_query: Callable[[FullQuery], DataFrame | None]
    extreme_rows: int = EXTREME_ROWS.default
    spare_rows: int = SPARE_ROWS.default
    window_rows: int = WINDOW_ROWS.default
    recomputes: Recompute | None = None
    instant: datetime | None = None
    last_instant: datetime | None = None
    steps: SideBySide = field(default_factory=SideBySide)
    fused_columns: FusedColumns = field(default_factory=FusedColumns)
    changes: dict[PlanNode, RowSet | None] = field(default_factory=dict)
    strict: bool = False
    may_have_expired: bool = False
    leaves_out_old_errors: bool = False
    asked_for_by_joins: frozenset[PlanNode] = frozenset()
    closed: Mapping[Aggregate, Closed] = field(default_factory=dict)
    runs_for: Pass = Pass.CHANGES
    rows_now: dict[PlanNode, RowSet | None] = field(default_factory=dict)

    def state_is_new(self, node: PlanNode) -> bool:
        """Whether a node's state is empty, and its inputs come as all of their rows."""
        if self.new_state.is_all or self.runs_for is not Pass.CHANGES:
            return True
        return bool(self.new_state.ids) and self.node_ids.get(node) in self.new_state.ids

    def is_netted(self, node: PlanNode) -> bool:
        """Whether nothing has to be summed in a node's change set.

        In a view's first epoch, each row of a node with a key comes once.
        """
        is_first = self.new_state.is_all and self.runs_for is Pass.CHANGES
        return is_consolidated(node) or (is_first and node.stream_key is not None and self.relations.come_once())

    @property
    def spark(self) -> SparkSession:
        """The session that the epoch's DataFrames belong to."""
        return self.row_sets.spark

    def is_read_again(self, node: PlanNode) -> bool:
        """Whether each reader reads a node's rows again.

        All rows of sources are too many to hold.
        """
        return self.state_is_new(node) and not self.row_sets.shares_by_jobs and is_only_read(node)

    def in_parallel(self, *calls: Callable[[], T]) -> list[T]:
        """Results of independent calls.

        They run at the same time where sharing computes.
        """
        if not self.row_sets.shares_by_jobs:
            return [call() for call in calls]
        # Jobs of another thread would be of no job group, and in no pool. Each needs properties of its own: Spark notes in
        # them which query a thread is running.
        return self.steps.all(*calls[:1], *(inheritable_thread_target(self.spark)(call) for call in calls[1:]))
