"""Common parts of joins: sides, in state or in place, and matching rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.in_place import Wanted, rows_now
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Join, PlanNode
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.state_table import StateTable

LEFT_WEIGHT: Final = "_left_weight"
RIGHT_WEIGHT: Final = "_right_weight"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a join.

    Parameters
    ----------
    node : the side's input.
    table : its state table; ``None`` where the side is looked up in place.
    weight : the column that its weight has in pairs.
    wanted : the join's equalities, seen from this side.
    """

    node: PlanNode
    table: StateTable | None
    weight: str
    wanted: tuple[Wanted, ...]

    @property
    def state(self) -> StateTable:
        """The table of a side that has one."""
        assert self.table is not None
        return self.table

    @property
    def looks_up_by(self) -> list[str]:
        """The side's columns by whose values the other side's rows are found."""
        return [w.ours for w in self.wanted if not w.null_safe][:1]

    def shared(self, ctx: EpochContext, change_set: RowSet, *, summed: bool = False) -> RowSet:
        """The side's change set for several readers, summed if asked for."""
        if ctx.is_read_again(self.node):
            return ctx.row_sets.of(consolidate(change_set.frame, self.node.schema)) if summed else change_set
        return change_set.shared(self.looks_up_by, summed=summed)

    def matching_rows(self, ctx: EpochContext, changed: RowSet) -> DataFrame:
        """At least the rows of this side that the other side's shared change set matches.

        Returns
        -------
        The side's columns and its weight: unmerged rows as of the last epoch, or rows as of this one if in place.
        """
        if self.table is None:
            return weighted(rows_now(ctx, self.node, changed, self.wanted), self.weight)
        lookup_keys = changed.lookup_keys([(w.ours, w.theirs) for w in self.wanted if not w.null_safe])
        columns = [c.name for c in self.table.desc.schema.columns]
        runs = self.table.storage.runs(columns, lookup_keys)
        return runs.selectExpr(*columns_of(columns), f"{STATE_WEIGHT} AS {self.weight}")


def sides_of(ctx: EpochContext, node: Join) -> tuple[Side, Side]:
    """The left and the right side of a join."""
    tables = iter(ctx.tables[node])
    left = tuple(Wanted(k.left, k.right, k.null_safe) for k in node.keys)
    right = tuple(Wanted(k.right, k.left, k.null_safe) for k in node.keys)
    return (
        Side(node.left, None if node.left_in_place else next(tables), LEFT_WEIGHT, left),
        Side(node.right, None if node.right_in_place else next(tables), RIGHT_WEIGHT, right),
    )


def weighted(change_set: DataFrame, weight: str) -> DataFrame:
    """A change set whose weight has a side's name."""
    return change_set.withColumnRenamed(WEIGHT, weight)
