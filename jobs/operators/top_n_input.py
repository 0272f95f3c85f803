"""Top-n without or with a very large limit: old against new, of all input.

State: materialized input. Cost: the input.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.aggregate_group import Affected
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.materialized_input import new_minus_old, old_and_new, received
from relstate_dagster.jobs.operators.ordering import by_order_then_all
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import TopN
from relstate_dagster.state_lib.row_sums import consolidate

_VERSION = "_version"


def change(ctx: EpochContext, node: TopN, child: RowSet | None) -> OperatorResult:
    """The rows that entered or left the first n."""
    if child is None:
        return OperatorResult(None)
    (table,) = ctx.tables[node]
    changed = received(ctx, table, node.child, child)
    if changed is None:
        return OperatorResult(None)
    versions = ctx.row_sets.shared(
        old_and_new(ctx, node, table, (), changed, Affected(changed.frame, None, None), _VERSION)
    ).frame
    difference = new_minus_old(ctx, node, versions, _VERSION, lambda rows: picked(node, rows))
    return OperatorResult(ctx.row_sets.of(consolidate(difference, node.schema)))


def picked(node: TopN, rows: DataFrame) -> DataFrame:
    """Rows of the query's result out of all or the first, each copy apart."""
    ordered = rows.orderBy(*by_order_then_all(node.order, node.schema))
    if node.offset:
        ordered = ordered.offset(node.offset)
    return ordered if node.limit is None else ordered.limit(max(node.limit, 0))
