"""Fill the new state of some nodes, while the others go on by changes.

With X₋ the rows of a node's inputs as of the last epoch and X₊ those as of this one, a node f with new state

* is run on all rows X₊, as in a view's first epoch, and its state is then that of this epoch;
* gives the nodes above it f(X₊) − f(X₋). They have received f(X₋) in earlier epochs, so this is the change that they expect.

f(X₋) is computed by the same operator, and what it writes is dropped. It is left out where no input has changed. A node above
that is new as well gets f(X₊). A node below that is not new goes on by changes, and is run once more on all rows for the nodes
above it, with a state that is dropped.

Rows of a relation as of the last epoch are those as of this one without the changes in between, so no earlier version of a
source is read. What is filled has to be a function of these rows. State that is not, cannot be filled alone: rows that
may have expired, a query that runs in full, and ids that rows were given when they came in.

Cost: all rows of the relations below the new nodes, twice where they have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult, Pass
from relstate_dagster.jobs.operators.one_pass import FusedColumns
from relstate_dagster.jobs.operators.relations import OtherRelations, Relations
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Arrange, Field, FullQuery, PlanNode, Scan, Temporal, walk
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.state_lib.constants import ROW_ID, WEIGHT
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_table import StateTable


@dataclass(frozen=True, slots=True)
class _AllRows(OtherRelations):
    """Relations whose rows are all in their change sets.

    Parameters
    ----------
    columns : read of each relation; others are NULL.
    subtracts : whether the changes of this epoch are taken back.
    """

    columns: Mapping[str, frozenset[str]]
    scans: Mapping[str, Sequence[Field]]
    subtracts: bool

    def changes(self, name: str) -> DataFrame | None:
        """All rows of a relation."""
        rows = self._read(name, self.relations.rows(name, None))
        changed = self.relations.changes(name) if self.subtracts else None
        if changed is None:
            return rows
        columns = columns_of([f.name for f in self.scans[name]])
        taken_back = self._read(name, changed).select(*columns, (-F.col(WEIGHT)).alias(WEIGHT))
        return consolidate(rows.union(taken_back), self.scans[name])

    def _read(self, name: str, rows: DataFrame) -> DataFrame:
        read = self.columns.get(name, frozenset())
        columns = [
            F.col(quoted(f.name)) if f.name in read else F.lit(None).cast(f.data_type).alias(f.name) for f in self.scans[name]
        ]
        return rows.select(*columns, WEIGHT)


class PartialFill:
    """Evaluates nodes on all rows, in an epoch that fills a part of a plan.

    Parameters
    ----------
    ctx : of the epoch; its operators run for changes.
    operator_of : the operator of a node.
    uses : how many nodes read each node.

    Raises
    ------
    StateError : the state of a new node is no function of the relations' rows.
    """

    def __init__(
        self,
        ctx: EpochContext,
        root: PlanNode,
        operator_of: Callable[[PlanNode], Callable[..., OperatorResult]],
        uses: Mapping[PlanNode, int],
    ) -> None:
        # What arrange keeps it finds again when lookups would read many rows.
        self._new = {node for node in walk(root) if ctx.state_is_new(node) and not isinstance(node, Arrange)}
        self._ctx = ctx
        self._operator_of = operator_of
        self._uses = uses
        used: dict[str, set[str]] = {}
        # Where all rows of the view are computed, so are those of nodes without state.
        for node in self._new if ctx.recomputes is None else [root]:
            for name, columns in used_columns(node).items():
                used.setdefault(name, set()).update(columns)
        _check(ctx, root, used)
        scans: dict[str, dict[str, Field]] = {}
        for scan in walk(root):
            if isinstance(scan, Scan):
                scans.setdefault(scan.relation, {}).update({f.name: f for f in scan.columns})
        read = {name: frozenset(found) for name, found in used.items()}
        fields = {name: tuple(found.values()) for name, found in scans.items()}
        all_rows = partial(_AllRows, ctx.relations, read, fields)
        self._now = self._context(Pass.ROWS_NOW, all_rows(subtracts=False), self._new)
        self._before = replace(
            self._context(Pass.ROWS_BEFORE, all_rows(subtracts=True), ()),
            instant=ctx.last_instant,
            leaves_out_old_errors=ctx.leaves_out_old_errors,
        )

    def fills(self, node: PlanNode) -> bool:
        """Whether a node's state is filled."""
        return node in self._new

    def rows_now(self, node: PlanNode) -> RowSet | None:
        """All rows of a node as of this epoch; new state below it is filled."""
        return self._rows(self._now, node)

    def change(self, node: PlanNode, change_of: Callable[[PlanNode], RowSet | None]) -> RowSet | None:
        """The change set of a node with new state.

        Parameters
        ----------
        change_of : the change set of another node.
        """
        now = self.rows_now(node)
        now = self._ctx.rows_now[node] = None if now is None else now.shared()
        below = list(walk(node))
        by_time = any(isinstance(one, Temporal) for one in below) and self._ctx.instant != self._ctx.last_instant
        if not by_time and all(change_of(one) is None for one in below if isinstance(one, Scan)):
            return None
        before = self._rows(self._before, node)
        columns = columns_of(node.column_names)
        signed = ((now, F.col(WEIGHT)), (before, -F.col(WEIGHT)))
        parts = [rows.frame.select(*columns, weight.alias(WEIGHT)) for rows, weight in signed if rows is not None]
        if not parts:
            return None
        changes = self._ctx.row_sets.shared(consolidate(reduce(DataFrame.union, parts), node.schema))
        return None if changes.is_empty else changes

    def _rows(self, ctx: EpochContext, node: PlanNode) -> RowSet | None:
        def computed() -> RowSet | None:
            inputs = ctx.in_parallel(*(partial(self._rows, ctx, child) for child in node.children))
            rows = self._operator_of(node)(ctx, node, *inputs).changes
            is_shared = self._uses.get(node, 0) > 1 and not ctx.is_read_again(node)
            return rows.shared() if rows is not None and is_shared else rows

        return ctx.steps.once((ctx.runs_for, node), computed)

    def _context(self, runs_for: Pass, relations: Relations, kept: Sequence[PlanNode] | set[PlanNode]) -> EpochContext:
        """A context in which operators get all rows, and only some nodes' state is kept."""
        ctx = self._ctx
        tables = {
            node: of_node if node in kept else [StateTable(ctx.spark, table.storage, ctx.epoch) for table in of_node]
            for node, of_node in ctx.tables.items()
        }
        return replace(
            ctx,
            runs_for=runs_for,
            relations=relations,
            tables=tables,
            fused_columns=FusedColumns(),
            changes={},
            leaves_out_old_errors=False,
            asked_for_by_joins=frozenset(),
        )


def all_rows_now(ctx: EpochContext, node: PlanNode) -> DataFrame:
    """Rows of a node whose state has been filled in this epoch."""
    rows = ctx.rows_now.get(node)
    return (ctx.row_sets.none(node.schema) if rows is None else rows).frame


def _check(ctx: EpochContext, root: PlanNode, used: Mapping[str, set[str]]) -> None:
    with_ids = sorted(name for name, columns in used.items() if ROW_ID in columns and ctx.relations.gives_ids(name))
    if ctx.may_have_expired:
        reason = "rows of its state may have expired (state.ttl)"
    elif any(isinstance(node, FullQuery) for node in walk(root)):
        reason = "its query runs in full"
    elif with_ids:
        reason = f"rows of {', '.join(with_ids)} are kept by ids that they were given as they came in"
    else:
        return
    raise StateError(
        f"epoch {ctx.epoch}: a part of a view's state cannot be filled alone: {reason}; rebuild with --full-refresh"
    )
