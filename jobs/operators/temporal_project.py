"""Temporal projection: Δ = π_new(ΔR) + (π_new − π_old)(R₋).

π_new and π_old append, for some comparisons of a column with a time, whether they hold at the instant of this epoch and of the
view's last one. What is above it (CASE in the select list, OR in a condition, FILTER of an aggregate) reads these columns, and
does not know of time.

State and cost are those of :mod:`.jobs.operators.temporal_filter`: a row of which a comparison has changed has a compared
column between the old and the new time. Such a row is taken back with its old flags and given with the new ones.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.temporal_filter import instant_text, may_have_changed
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.planner.nodes import TemporalProject
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_table import StateTable


def change(ctx: EpochContext, node: TemporalProject, child: DataFrame | None) -> DataFrame | None:
    """The changed rows with the flags that they have now, and the stored ones of which time alone has changed a flag."""
    (table,) = ctx.tables[node]
    now = instant_text(ctx.instant)
    changed = None
    if child is not None:
        child = ctx.frames.share(child)
        if not ctx.frames.is_empty(child):
            table.write(child)
            flags = (f"{sql} AS {quoted(flag.name)}" for sql, flag in zip(node.flags_at(now), node.flags, strict=True))
            changed = child.selectExpr(*columns_of(node.child.column_names), *flags, WEIGHT)
    if ctx.is_backfill:
        return changed
    crossed = _crossed(node, table, instant_text(ctx.last_instant), now)
    if changed is not None:
        return changed.union(crossed)
    # With nothing else to tell, it is worth a look whether any row has crossed: views above then have nothing to do.
    crossed = ctx.frames.share(crossed)
    return None if ctx.frames.is_empty(crossed) else crossed


def _crossed(node: TemporalProject, table: StateTable, before: str, now: str) -> DataFrame:
    """The stored rows, as of the last epoch, of which a flag has another value than it had then: as they were and are."""
    old, new = node.flags_at(before), node.flags_at(now)
    have = " OR ".join(f"NOT (({a}) <=> ({b}))" for a, b in zip(old, new, strict=True))
    names = list(node.child.column_names)
    rows = table.storage.runs(names).where(f"{may_have_changed(node.bounds, before, now)} AND ({have})")
    as_they_are = ", ".join((_as(node, old, f"-{STATE_WEIGHT}"), _as(node, new, STATE_WEIGHT)))
    return rows.selectExpr(*columns_of(names), f"inline(array({as_they_are}))")


def _as(node: TemporalProject, flags: tuple[str, ...], weight: str) -> str:
    columns = [f"{sql} AS {quoted(flag.name)}" for sql, flag in zip(flags, node.flags, strict=True)]
    return f"struct({', '.join([*columns, f'{weight} AS {WEIGHT}'])})"
