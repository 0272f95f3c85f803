"""Temporal filter: Δ = σ_new(ΔR) + (σ_new − σ_old)(R₋).

σ_new and σ_old are the condition at the instant of this epoch and at that of the view's last one.

The condition is a conjunction of comparisons of a column with a time. Nothing is asked of how the times move: a row
comes, goes, or comes back by the same formula, and a clock that is set back is no special case.

State: the input's rows, by weight, under ``compared columns | stream key``. A row whose condition has another value than
before has a compared column between the old and the new time (or equal to one of them), so only that range of the key is
read; Parquet's statistics skip the rest. Runs are read unmerged: the formula is linear. Rows that can never hold again
are kept: one may still be deleted, and what the input retracts must be there.

Cost: |Δ|, and the state rows between the old and the new times. Where a time has not moved (``current_date()`` on the
same day) Spark finds the condition unchanged while it plans, and opens no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import DataFrame

from relstate_dagster.jobs.instants import timestamp_sql
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.planner.nodes import TemporalFilter, TimeBound
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_table import StateTable


def change(ctx: EpochContext, node: TemporalFilter, child: DataFrame | None) -> DataFrame | None:
    """The changed rows that hold now, and the stored ones that time alone has brought in or taken out."""
    (table,) = ctx.tables[node]
    now = instant_text(ctx.instant)
    changed = None
    if child is not None:
        child = ctx.frames.share(child)
        if not ctx.frames.is_empty(child):
            table.write(child)
            changed = child.where(holds(node, now))
    if ctx.is_backfill:
        return changed
    crossed = _crossed(node, table, instant_text(ctx.last_instant), now)
    if changed is not None:
        return changed.union(crossed)
    # With nothing else to tell, it is worth a look whether any row has crossed: views above then have nothing to do.
    crossed = ctx.frames.share(crossed)
    return None if ctx.frames.is_empty(crossed) else crossed


def holds(node: TemporalFilter, instant: str) -> str:
    """The condition at an instant, as SQL text; false where it is NULL."""
    return f"coalesce({' AND '.join(f'({b.sql_at(instant)})' for b in node.bounds)}, false)"


def may_have_changed(bounds: Sequence[TimeBound], before: str, now: str) -> str:
    """What is true of every row for which one of some comparisons has changed, as SQL text."""
    return f"({' OR '.join(between(bound, before, now) for bound in bounds)})"


def between(bound: TimeBound, before: str, now: str) -> str:
    """What is true of every row for which a comparison has changed: its column is within the times, ends included.

    A time that is NULL bounds nothing; there every row may have changed.
    """
    old, new, column = bound.time_at(before), bound.time_at(now), quoted(bound.column)
    within = f"({column} >= least({old}, {new}) AND {column} <= greatest({old}, {new}))"
    return f"({within} OR ({old}) IS NULL OR ({new}) IS NULL)"


def _crossed(node: TemporalFilter, table: StateTable, before: str, now: str) -> DataFrame:
    """The stored rows, as of the last epoch, for which the condition has another value than it had then."""
    columns = columns_of(node.column_names)
    have = f"NOT ({holds(node, before)} <=> {holds(node, now)})"
    rows = table.storage.runs(list(node.column_names)).where(f"{may_have_changed(node.bounds, before, now)} AND {have}")
    weight = f"CASE WHEN {holds(node, now)} THEN {STATE_WEIGHT} ELSE -{STATE_WEIGHT} END AS {WEIGHT}"
    return rows.selectExpr(*columns, weight)


def instant_text(instant: datetime | None) -> str:
    """An instant of an epoch as SQL text.

    Raises
    ------
    StateError : the catalog has none.
    """
    if instant is None:
        raise StateError(
            "a temporal filter needs the instant of this epoch and of the view's last one, and the "
            "catalog has none; rebuild with --full-refresh"
        )
    return timestamp_sql(instant)
