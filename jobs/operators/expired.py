"""Change sets reconciled with state whose rows may have expired (``state.ttl``).

What has expired stays in the view as it was, and can no longer be retracted. So before an operator gets a change set,

* a retraction of a row that its state does not have is dropped, and
* where rows have a key, an insertion replaces the row of its key that is stored, whether or not it was retracted.

After that every change set adds to what is stored as it does without expiry, and no operator has to know of it. The view's own
rows never expire, so the view takes an insertion of a key that it has for the update that it is.

Cost: one lookup of the changed rows in each state table that keeps them. Nothing of this is done before the first row can have
expired.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.aggregate_group import same_group, stored_groups, tables_by_role
from relstate_dagster.jobs.operators.agreement import agreeing_counts, agreeing_rows
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.pairs import sides_of
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan import nodes
from relstate_dagster.jobs.plan.nodes import Aggregate, Join, PlanNode
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.state_table import StateTable

#: Their one input is kept in their first table.
_KEEPERS = (nodes.Window, nodes.TopN, nodes.Temporal, nodes.Materialize)


def reconcile_expired(ctx: EpochContext, node: PlanNode, inputs: Sequence[RowSet | None]) -> list[RowSet | None]:
    """Inputs of an operator, reconciled with its state tables after expiry."""
    if isinstance(node, Join):
        return [
            change if change is None or side.table is None else agreeing_with(ctx, side.table, side.node, change)
            for change, side in zip(inputs, sides_of(ctx, node), strict=True)
        ]
    if isinstance(node, Aggregate):
        return [None if inputs[0] is None else _of_aggregate(ctx, node, inputs[0])]
    if isinstance(node, _KEEPERS):
        kept = node if isinstance(node, nodes.Materialize) else node.child
        return [None if inputs[0] is None else agreeing_with(ctx, ctx.tables[node][0], kept, inputs[0])]
    return list(inputs)


def agreeing_with(ctx: EpochContext, table: StateTable, rows: PlanNode, change: RowSet) -> RowSet | None:
    """A change of a node, reconciled with the table of its rows.

    ``None`` if nothing is left.
    """
    if rows.append_only:
        return change
    change = change.shared(summed=True)
    if change.is_empty:
        return None
    names, key = rows.column_names, rows.stream_key
    if key is not None:
        return _left(ctx, agreeing_rows(table, change, names, key))
    comparable = [f.name for f in rows.schema if not f.type.has_maps]
    return _left(ctx, agreeing_counts(table, change, names, comparable))


def check_agrees(ctx: EpochContext, node: PlanNode, inputs: Sequence[RowSet | None]) -> None:
    """Check, in strict mode, that a join retracts only stored rows.

    Joins look rows of a side up by what changes on the other one. A retraction of a row that was never stored would be noticed
    when that happens, or by the next compaction.

    Raises
    ------
    StateError : one does not, with the row.
    """
    if not isinstance(node, Join):
        return
    for change, side in zip(inputs, sides_of(ctx, node), strict=True):
        if change is None or side.table is None or side.node.append_only:
            continue
        agreed = agreeing_with(ctx, side.table, side.node, change)
        columns = columns_of(side.node.column_names)
        rows = change.frame.select(*columns, WEIGHT)
        if agreed is not None:
            rows = rows.union(agreed.frame.select(*columns, (-F.col(WEIGHT)).alias(WEIGHT)))
        for row in consolidate(rows, side.node.schema).limit(1).collect():
            raise StateError(
                f"epoch {ctx.epoch}: strict mode: {row.asDict()} of {side.table.storage.place()} is not what the state has of "
                "it: state and inputs contradict each other, rebuild with --full-refresh"
            )


def _of_aggregate(ctx: EpochContext, node: Aggregate, change: RowSet) -> RowSet | None:
    """The change without retractions from groups, or input rows, that are not stored."""
    tables = tables_by_role(ctx, node)
    if node.group and not node.child.append_only:
        change = change.shared()
        if change.is_empty:
            return None
        known = stored_groups(tables.groups, change, node.group).alias("known")
        retracted = change.frame.where(f"{WEIGHT} < 0").alias("retracted")
        retracted = retracted.join(known, same_group(node.group, "retracted", "known"), "left_semi")
        agreed = _left(ctx, change.frame.where(f"{WEIGHT} > 0").union(retracted))
        if agreed is None:
            return None
        change = agreed
    return change if tables.input is None else agreeing_with(ctx, tables.input, node.child, change)


def _left(ctx: EpochContext, change: DataFrame) -> RowSet | None:
    shared = ctx.row_sets.shared(change)
    return None if shared.is_empty else shared
