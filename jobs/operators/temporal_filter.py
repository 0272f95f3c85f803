"""Temporal filter: Δ = σ_new(ΔR) + (σ_new − σ_old)(R₋).

σ_new and σ_old are the condition at the instant of this epoch and at that of the view's last one.

The condition is a conjunction of comparisons of a column with a time. Nothing is asked of how the times move: a row
comes, goes, or comes back by the same formula, and a clock that is set back is no special case.

State: the input's rows, by weight, under ``compared columns | stream key``. If a row's condition has changed its value, its
compared column lies between the old and the new time (or equals one of them). So only that range of the key is read;
Parquet's statistics skip the rest. Runs are read unmerged: the formula is linear. Rows that can never hold again are kept:
one may still be deleted, and what the input retracts must be there.

Cost: |Δ|, and the state rows between the old and the new times. Where a time has not moved (``current_date()`` on the
same day) Spark finds the condition unchanged while it plans, and opens no file.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.by_time import changed_by_time
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import TemporalFilter
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT


def change(ctx: EpochContext, node: TemporalFilter, child: RowSet | None) -> OperatorResult:
    """Changed rows that hold now, and stored rows that time brings in or out."""
    return OperatorResult(changed_by_time(ctx, node, child, partial(_holding, node), partial(_crossed, node)))


def holds(node: TemporalFilter, instant: str) -> str:
    """The condition at an instant, as SQL text; false where it is NULL."""
    return f"coalesce({' AND '.join(f'({b.sql_at(instant)})' for b in node.bounds)}, false)"


def _holding(node: TemporalFilter, changed: DataFrame, now: str) -> DataFrame:
    return changed.where(holds(node, now))


def _crossed(node: TemporalFilter, rows: DataFrame, before: str, now: str) -> DataFrame:
    """Of stored rows those for which the condition has another value than it had."""
    weight = f"CASE WHEN {holds(node, now)} THEN {STATE_WEIGHT} ELSE -{STATE_WEIGHT} END AS {WEIGHT}"
    changed = rows.where(f"NOT ({holds(node, before)} <=> {holds(node, now)})")
    return changed.selectExpr(*columns_of(node.column_names), weight)
