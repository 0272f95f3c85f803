"""Rows that time alone changes, for temporal filters and projections.

The input is kept in state, by the columns that are compared with a time. If a comparison of a row has changed, such a
column lies between the old and the new time, or equals one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

from pyspark.sql import DataFrame

from relstate_dagster.jobs.engine.instants import timestamp_sql
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.plan.nodes import Temporal, TimeBound
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.sql_text import quoted

#: What a node makes of rows of its change set, for the instant of this epoch as SQL text.
AsNow: TypeAlias = Callable[[DataFrame, str], DataFrame]
#: What it makes of stored rows that may have changed, for the instants of the view's last epoch and of this one.
Crossed: TypeAlias = Callable[[DataFrame, str, str], DataFrame]


def changed_by_time(
    ctx: EpochContext, node: Temporal, child: RowSet | None, as_now: AsNow, crossed_of: Crossed
) -> RowSet | None:
    """Changed rows as of now, and stored rows that time alone has changed."""
    (table,) = ctx.tables[node]
    now = _text(ctx.instant)
    changed = None
    if child is not None:
        child = child.shared()
        if not child.is_empty:
            table.write(child.frame)
            changed = as_now(child.frame, now)
    if ctx.state_is_new(node):
        return None if changed is None else ctx.row_sets.of(changed)
    before = _text(ctx.last_instant)
    stored = table.storage.runs(list(node.child.column_names)).where(_may_have_changed(node.bounds, before, now))
    crossed = crossed_of(stored, before, now)
    if changed is not None:
        return ctx.row_sets.of(changed.union(crossed))
    # With nothing else to tell, it is worth a look whether any row has crossed: views above then have nothing to do.
    alone = ctx.row_sets.shared(crossed)
    return None if alone.is_empty else alone


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
