"""Temporal projection: Δ = π_new(ΔR) + (π_new − π_old)(R₋).

π_new and π_old append, for some comparisons of a column with a time, whether they hold at the instant of this epoch and of the
view's last one. What is above it (CASE in the select list, OR in a condition, FILTER of an aggregate) reads these columns, and
does not know of time.

State and cost are those of :mod:`.jobs.operators.temporal_filter`: if a comparison of a row has changed, its compared
column lies between the old and the new time. Such a row is taken back with its old flags and given with the new ones.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.by_time import changed_by_time
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import TemporalProject
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT


def change(ctx: EpochContext, node: TemporalProject, child: RowSet | None) -> OperatorResult:
    """Changed rows with current flags, and stored rows whose flag changed with time."""
    return OperatorResult(changed_by_time(ctx, node, child, partial(_flagged, node), partial(_crossed, node)))


def _flagged(node: TemporalProject, changed: DataFrame, now: str) -> DataFrame:
    return changed.selectExpr(*columns_of(node.child.column_names), *node.flags_at(now), WEIGHT)


def _crossed(node: TemporalProject, rows: DataFrame, before: str, now: str) -> DataFrame:
    """Stored rows whose flag changed, as old and new rows."""
    have = " OR ".join(f"NOT (({bound.sql_at(before)}) <=> ({bound.sql_at(now)}))" for bound in node.bounds)
    as_it_was = ", ".join([*node.flags_at(before), f"-{STATE_WEIGHT} AS {WEIGHT}"])
    as_it_is = ", ".join([*node.flags_at(now), f"{STATE_WEIGHT} AS {WEIGHT}"])
    both = f"inline(array(struct({as_it_was}), struct({as_it_is})))"
    return rows.where(have).selectExpr(*columns_of(node.child.column_names), both)
