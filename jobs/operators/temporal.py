"""Temporal filter and projection: Δ = f_new(ΔR) + (f_new − f_old)(R₋).

f_new and f_old are the node's rule at the instant of this epoch and at that of the view's last one. A filter keeps rows by a
conjunction of comparisons of a column with a time. A projection appends whether such comparisons hold. What is above it (CASE
in the select list, OR in a condition, FILTER of an aggregate) reads these columns, and does not know of time. Nothing is asked
of how the times move: a row comes, goes, or comes back by the same formula, and a clock that is set back is no special case.

State: the input's rows, by weight, under ``compared columns | stream key``. If a comparison of a row has changed its value, its
compared column lies between the old and the new time (or equals one of them). So only that range of the key is read;
Parquet's statistics skip the rest. Runs are read unmerged: the formula is linear. Rows that can never hold again are kept:
one may still be deleted, and what the input retracts must be there.

Cost: |Δ|, and the state rows between the old and the new times. Where a time has not moved (``current_date()`` on the
same day) Spark finds the condition unchanged while it plans, and opens no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import DataFrame

from relstate_dagster.jobs.engine.instants import timestamp_sql
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import TemporalFilter, TemporalProject, TimeBound
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.sql_text import quoted


def change(ctx: EpochContext, node: TemporalFilter | TemporalProject, child: RowSet | None) -> OperatorResult:
    """Changed rows as of now, and stored rows that time alone has changed."""
    (table,) = ctx.tables[node]
    now = _text(ctx.instant)
    changed = None
    if child is not None:
        child = child.shared()
        if not child.is_empty:
            table.write(child.frame)
            changed = rows_by_rule(node, [child.frame], [WEIGHT], instant=now)
    if ctx.state_is_new(node):
        return OperatorResult(None if changed is None else ctx.row_sets.of(changed))
    before = _text(ctx.last_instant)
    stored = table.storage.runs(list(node.child.column_names)).where(_may_have_changed(node.bounds, before, now))
    crossed = _changed_by_time(node, stored, before, now)
    if changed is not None:
        return OperatorResult(ctx.row_sets.of(changed.union(crossed)))
    # With nothing else to tell, it is worth a look whether any row has crossed: views above then have nothing to do.
    alone = ctx.row_sets.shared(crossed)
    return OperatorResult(None if alone.is_empty else alone)


def _changed_by_time(node: TemporalFilter | TemporalProject, rows: DataFrame, before: str, now: str) -> DataFrame:
    """Stored rows with another result than before, as a change."""
    columns = columns_of(node.child.column_names)
    if isinstance(node, TemporalFilter):
        held, holds = node.condition_at(before), node.condition_at(now)
        weight = f"CASE WHEN {holds} THEN {STATE_WEIGHT} ELSE -{STATE_WEIGHT} END AS {WEIGHT}"
        return rows.where(f"NOT ({held} <=> {holds})").selectExpr(*columns, weight)
    differ = " OR ".join(f"NOT (({bound.sql_at(before)}) <=> ({bound.sql_at(now)}))" for bound in node.bounds)
    old = ", ".join([*node.flags_at(before), f"-{STATE_WEIGHT} AS {WEIGHT}"])
    new = ", ".join([*node.flags_at(now), f"{STATE_WEIGHT} AS {WEIGHT}"])
    return rows.where(differ).selectExpr(*columns, f"inline(array(struct({old}), struct({new})))")


def _may_have_changed(bounds: Sequence[TimeBound], before: str, now: str) -> str:
    """Condition, as SQL, of rows for which some comparison has changed."""
    return " OR ".join(_between(bound, before, now) for bound in bounds)


def _between(bound: TimeBound, before: str, now: str) -> str:
    """Condition, as SQL, of rows for which a comparison has changed.

    Its column is within the times, ends included.

    A time that is NULL bounds nothing; there every row may have changed.
    """
    old, new, column = bound.time_at(before), bound.time_at(now), quoted(bound.column)
    within = f"({column} >= least({old}, {new}) AND {column} <= greatest({old}, {new}))"
    return f"({within} OR ({old}) IS NULL OR ({new}) IS NULL)"


def _text(instant: datetime | None) -> str:
    if instant is None:
        raise StateError(
            "a temporal filter or projection needs the instant of this epoch and of the view's last one, and the "
            "catalog has none; rebuild with --full-refresh"
        )
    return timestamp_sql(instant)
