"""Window functions: results within reach of a change, old rows against new rows.

State: materialized input, keyed ``partition key | stream key``. Ties are broken by all columns, equally in both versions.
So a function that depends on the order of equal rows gives the same rows when its old result is recomputed to be retracted.
The last rows of each partition are kept once more, where functions allow that (:mod:`.jobs.operators.latest_windows`) and the
input is not small. They are taken from all rows once it has grown.
Cost: the kept rows of the affected partitions, and all rows of those that a change reaches elsewhere.
"""

from __future__ import annotations

import math

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.aggregate_group import Affected, same_group
from relstate_dagster.jobs.operators.changed_windows import AFFECTED, near_changes
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.latest_windows import all_with_latest, change_from_latest, write_latest
from relstate_dagster.jobs.operators.materialized_input import (
    NEW_COPIES,
    OLD_COPIES,
    both_versions,
    new_minus_old,
    received,
    with_copies,
)
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of, repeat_by_weight
from relstate_dagster.jobs.plan.nodes import LatestRows, Window
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.tuning import tuning

_VERSION = "_version"


def change(ctx: EpochContext, node: Window, child: RowSet | None) -> OperatorResult:
    """Rows whose columns or window results changed."""
    if child is None:
        return OperatorResult(None)
    table, *kept = ctx.tables[node]
    changed = received(ctx, table, node.child, child, node.partition[:1])
    if changed is None:
        return OperatorResult(None)
    keys = _keys_of(node, changed)
    if node.latest is None or (_is_unfilled(ctx, node, kept[0]) and _is_small(ctx, node, table, changed)):
        rows = _recomputed(ctx, node, _rows_of(ctx, node, table, changed, keys))
    else:
        rows = _with_latest(ctx, node, node.latest, table, kept[0], changed, keys)
    return OperatorResult(ctx.row_sets.of(rows if ctx.is_netted(node) else consolidate(rows, node.schema)))


def _with_latest(
    ctx: EpochContext, node: Window, latest: LatestRows, table: StateTable, kept: StateTable, changed: RowSet, keys: Affected
) -> DataFrame:
    """Change of the results, not consolidated; writes the latest rows."""
    if ctx.state_is_new(node):
        copies = _new_copies(_rows_of(ctx, node, table, changed, keys))
        rows = ctx.row_sets.shared(all_with_latest(ctx, node, latest, copies, with_results=True)).frame
        write_latest(kept, rows)
        return select(rows, [*columns_of(node.column_names), f"1L AS {WEIGHT}"])
    if _is_unfilled(ctx, node, kept):
        rows = ctx.row_sets.shared(with_copies(ctx, node, table, (), changed, keys)).frame
        write_latest(kept, all_with_latest(ctx, node, latest, _new_copies(rows), with_results=False))
        return _recomputed(ctx, node, _of_partitions(node, rows, keys))
    found = change_from_latest(ctx, node, latest, kept, changed, keys)
    if found.out.is_empty or (math.isinf(found.out.most_rows) and found.out.frame.isEmpty()):
        return found.rows
    keys = _keys_of(node, found.out)
    others = ctx.row_sets.of(_of_partitions(node, changed.frame, keys))
    rows = ctx.row_sets.shared(_rows_of(ctx, node, table, others, keys)).frame
    write_latest(kept, all_with_latest(ctx, node, latest, _new_copies(rows), with_results=False))
    return found.rows.union(_recomputed(ctx, node, rows))


def _is_unfilled(ctx: EpochContext, node: Window, kept: StateTable) -> bool:
    """Whether no latest rows are kept.

    Of any rows of the input there would be some.
    """
    return ctx.state_is_new(node) or _stored_rows(kept) == 0


def _is_small(ctx: EpochContext, node: Window, table: StateTable, changed: RowSet) -> bool:
    """Whether partitions are read whole, since the input has few rows."""
    stored = 0 if ctx.state_is_new(node) else _stored_rows(table)
    return stored is not None and stored + changed.most_rows <= tuning().whole_state_rows


def _stored_rows(table: StateTable) -> int | None:
    return table.storage.row_count_of([table.desc.table_id])


def _keys_of(node: Window, rows: RowSet) -> Affected:
    """The distinct partition keys of some rows."""
    lookup_keys = rows.lookup_keys([(name, name) for name in node.partition], null_safe=True)
    return Affected(rows.frame.select(*columns_of(node.partition)).distinct(), lookup_keys, rows.hint)


def _of_partitions(node: Window, rows: DataFrame, keys: Affected) -> DataFrame:
    """Rows of some partitions."""
    if not node.partition:
        return rows
    wanted = keys.groups.alias("wanted")
    return rows.alias("row").join(wanted, same_group(node.partition, "row", "wanted"), "left_semi")


def _rows_of(ctx: EpochContext, node: Window, table: StateTable, changed: RowSet, affected: Affected) -> DataFrame:
    """All rows of affected partitions, with their copies before and after."""
    return with_copies(ctx, node, table, node.partition, changed, affected)


def _new_copies(rows: DataFrame) -> DataFrame:
    """Rows after the change, one for each copy."""
    return repeat_by_weight(rows.drop(OLD_COPIES), NEW_COPIES)


def _recomputed(ctx: EpochContext, node: Window, rows: DataFrame) -> DataFrame:
    """Change of the results of whole partitions, not consolidated."""
    reach = None if ctx.state_is_new(node) or node.reach is None or node.reach.is_everywhere else node.reach
    if reach is not None:
        rows = near_changes(rows, node, reach)
    versions = ctx.row_sets.shared(both_versions(rows, _VERSION)).frame

    def with_results(rows: DataFrame) -> DataFrame:
        computed = rows_by_rule(node, [rows], ())
        return computed if reach is None else computed.where(AFFECTED).drop(AFFECTED)

    return new_minus_old(ctx, node, versions, _VERSION, with_results)
