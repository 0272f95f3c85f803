"""Rows of an aggregate out of its state, so that joins need no copy.

They are what the value state had as of the last epoch, and the change that the aggregate has made of it since. Where the
state is filled in this epoch, they are the rows that it is filled with.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators import aggregate_value
from relstate_dagster.jobs.operators.aggregate_group import group_exists, tables_by_role
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.filling import all_rows_now
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.consolidated import has_comparable_results
from relstate_dagster.jobs.plan.nodes import Aggregate
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.shared_lookup import lookup_several
from relstate_dagster.state_lib.sql_text import quoted


def rows_now(ctx: EpochContext, node: Aggregate, wanted_by: RowSet, on: Sequence[tuple[str, str]]) -> DataFrame:
    """Rows of at least the groups that a shared change set asks for.

    Parameters
    ----------
    on : pairs of a group column and the column of ``wanted_by`` it equals; none means every group.

    Returns
    -------
    The aggregate's columns and ``_weight``. A group that this epoch has changed has three rows: its old row, the same with
    weight −1, and its new row. The one row of an aggregate without groups is merged.
    """
    if ctx.state_is_new(node):
        return all_rows_now(ctx, node)
    tables = tables_by_role(ctx, node)
    stored = [state.table.storage for state in tables.value_states]
    lookup_keys = wanted_by.lookup_keys(on, null_safe=True)
    keys = wanted_by.frame if on else None
    runs = lookup_several(stored, keys, node.group, on=on, hint=wanted_by.hint, lookup_keys=lookup_keys)
    picked = (F.expr(f"{sql} AS {name}") for name, sql in aggregate_value.newest(tables).items())
    group = columns_of(node.group)
    newest = runs.groupBy(*group).agg(*picked)
    old = newest.selectExpr(*group, *(f"{sql} AS {name}" for name, sql in aggregate_value.old_columns(node, tables).items()))
    derived = aggregate_value.derived_of(node, tables, "old")
    old = old.selectExpr("*", *derived) if derived else old
    results = [f"{aggregate_value.result(node, tables, n, 'old')} AS {quoted(c.output.name)}" for n, c in enumerate(node.calls)]
    before = old.where(group_exists(node, "old")).selectExpr(*group, *results, f"1L AS {WEIGHT}")
    change = ctx.changes.get(node)
    if change is None:
        return before
    both = before.union(change.frame)
    # One row, that every row meets: where fifteen such follow each other (TPC-DS q9), three for one would be 3¹⁵.
    return both if node.group or not has_comparable_results(node) else consolidate(both, node.schema)
