"""Window functions: results within reach of a change, old rows against new rows.

State: materialized input, keyed ``partition key | stream key``. Ties are broken by all columns, equally in both versions.
So a function that depends on the order of equal rows gives the same rows when its old result is recomputed to be retracted.
Cost: the rows of the affected partitions are read; results are computed where a change reaches.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.aggregate_group import Affected
from relstate_dagster.jobs.operators.changed_windows import AFFECTED, near_changes
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.materialized_input import both_versions, new_minus_old, received, with_copies
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Window
from relstate_dagster.state_lib.row_sums import consolidate

_VERSION = "_version"


def change(ctx: EpochContext, node: Window, child: RowSet | None) -> OperatorResult:
    """Rows whose columns or window results changed."""
    if child is None:
        return OperatorResult(None)
    (table,) = ctx.tables[node]
    changed = received(table, node.child, child, node.partition[:1])
    if changed is None:
        return OperatorResult(None)
    lookup_keys = changed.lookup_keys([(name, name) for name in node.partition], null_safe=True)
    partition = columns_of(node.partition)
    affected = Affected(changed.frame.select(*partition).distinct(), lookup_keys, changed.hint)
    rows = with_copies(ctx, node, table, node.partition, changed, affected)
    reach = None if ctx.state_is_new(node) or node.reach is None or node.reach.is_everywhere else node.reach
    if reach is not None:
        rows = near_changes(rows, node, reach)
    versions = ctx.row_sets.shared(both_versions(rows, _VERSION)).frame

    def with_results(rows: DataFrame) -> DataFrame:
        computed = rows_by_rule(node, [rows], ())
        return computed if reach is None else computed.where(AFFECTED).drop(AFFECTED)

    difference = new_minus_old(ctx, node, versions, _VERSION, with_results)
    return OperatorResult(ctx.row_sets.of(consolidate(difference, node.schema)))
