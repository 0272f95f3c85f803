"""Value state: new accumulators = old accumulators + the folded change, per affected group.

The accumulators of a call, their change, and the result that is made of them are its kind's (:mod:`.jobs.plan.aggregates`).
Here they are read, folded for all calls in one grouping, and written.

DISTINCT calls have accumulators, too, of a change that :mod:`.jobs.operators.aggregate_distinct` finds. Extremes have the
first values of the group (:mod:`.jobs.operators.aggregate_extreme`). The first table also keeps the group's number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators import aggregate_newest
from relstate_dagster.jobs.operators.aggregate_group import Affected, GroupFrames, Tables, only
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, CallStrategy, Version
from relstate_dagster.jobs.plan.nodes import Aggregate
from relstate_dagster.jobs.plan.state_tables import GROUP_ROWS
from relstate_dagster.state_lib.constants import EPOCH, STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.shared_lookup import lookup_several
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.tuning import tuning


def fold(ctx: EpochContext, node: Aggregate, delta: DataFrame, tables: Tables, frames: GroupFrames) -> Affected | None:
    """Fold the change per group, and add frames of change and old state.

    Returns the affected groups, ``None`` if there are none.
    """
    folds = _folds(node, tables, is_new=ctx.state_is_new(node))
    folded = _folded(node, delta, folds)
    if ctx.state_is_new(node):
        frames.add(folded, {name: only(name) for name in folds})
        return Affected(folded.select(*columns_of(node.group)), None, None)
    shared = ctx.row_sets.shared(folded)
    if shared.is_empty:
        return None
    frames.add(shared.frame, {name: only(name) for name in folds})
    affected = Affected.by(shared, node.group)
    stored = [state.table.storage for state in tables.value_states]
    old = lookup_several(stored, affected.groups, node.group, hint=affected.hint, lookup_keys=affected.lookup_keys)
    frames.add(old, newest(tables))
    return affected


def is_read_whole(ctx: EpochContext, node: Aggregate, tables: Tables) -> bool:
    """Whether the old state is small enough to read before the groups are known."""
    if ctx.state_is_new(node) or not ctx.row_sets.shares_by_jobs or tables.input is not None:
        return False
    return few_rows(tables) is not None


def few_rows(tables: Tables) -> int | None:
    """Rows of old state that is small enough to be read whole; else ``None``."""
    stored = [state.table.storage for state in tables.value_states]
    rows = stored[0].row_count_of([table.desc.table_id for table in stored])
    return rows if rows is not None and rows <= tuning().whole_state_rows else None


def fold_into_all(node: Aggregate, delta: DataFrame, tables: Tables, frames: GroupFrames) -> None:
    """Fold the change per group, and add it with all of the old state.

    No step finds the groups first.
    """
    folds = _folds(node, tables, is_new=False)
    frames.add(_folded(node, delta, folds), {name: only(name) for name in folds})
    stored = [state.table.storage for state in tables.value_states]
    frames.add(lookup_several(stored, None, node.group), newest(tables))


def _folds(node: Aggregate, tables: Tables, *, is_new: bool) -> dict[str, str]:
    folds = {f"_d{GROUP_ROWS}": f"sum({WEIGHT})"}
    for position in tables.kept:
        if tables.strategy(position) is CallStrategy.VALUE:
            folds |= folds_of(node, position, tables)
    return folds | aggregate_newest.folds(node, is_new=is_new)


def folds_of(node: Aggregate, position: int, tables: Tables) -> dict[str, str]:
    """The changes of a call's accumulators by name: aggregates (SQL) over weighted rows."""
    changed = Version("d", position)
    return {changed[a.column]: a.change for a in _accumulators(node, position, tables)}


def _accumulators(node: Aggregate, position: int, tables: Tables) -> tuple[Accumulator, ...]:
    return tables.kinds[position].accumulators(node.calls[position])


def _folded(node: Aggregate, delta: DataFrame, folds: Mapping[str, str]) -> DataFrame:
    return delta.groupBy(*columns_of(node.group)).agg(*(F.expr(f"{sql} AS {name}") for name, sql in folds.items()))


def newest(tables: Tables) -> dict[str, str]:
    """Aggregates (SQL) that pick each table's newest state of a group."""
    return {_old_state(n): f"max_by(_state_{n}, {EPOCH}_{n})" for n in range(len(tables.value_states))}


def _old_state(number: int) -> str:
    return f"_old_state_{number}"


def versions(ctx: EpochContext, node: Aggregate, tables: Tables, groups: DataFrame) -> DataFrame:
    """Add the old and the new value of each accumulator to the grouped measures.

    The new ones of extremes come later.

    No count is negative where rows may have expired: what is retracted of a group that has come back may not be of its rows.
    """
    columns = _no_columns(node, tables) if ctx.state_is_new(node) else old_columns(node, tables)
    rows = f"{columns[f'_old{GROUP_ROWS}']} + coalesce(_d{GROUP_ROWS}, 0L)"
    columns |= {f"_new{GROUP_ROWS}": f"greatest({rows}, 0L)" if ctx.may_have_expired else rows, "_stored_new": "true"}
    for position in tables.kept:
        old, changed, new = (Version(version, position) for version in ("old", "d", "new"))
        for accumulator in _accumulators(node, position, tables):
            if accumulator.new is None:
                continue
            value = accumulator.new(columns[old[accumulator.column]], changed[accumulator.column])
            if ctx.may_have_expired and accumulator.at_least_zero is not None:
                value = accumulator.at_least_zero(value)
            columns[new[accumulator.column]] = value
    accumulated = groups.selectExpr("*", *(f"{sql} AS {name}" for name, sql in columns.items()))
    derived = [sql for version in ("old", "new") for sql in derived_of(node, tables, version)]
    return accumulated.selectExpr("*", *derived) if derived else accumulated


def unread(node: Aggregate, tables: Tables, *, is_new: bool) -> list[str]:
    """Columns that nothing reads once a group has its old and its new version."""
    names = [f"_d{GROUP_ROWS}", *map(_old_state, range(len(tables.value_states)))]
    for position in tables.kept:
        for version in ("d", "old") if is_new else ("d",):
            at = Version(version, position)
            names += [at[accumulator.column] for accumulator in _accumulators(node, position, tables)]
            names += tables.kinds[position].derived(node.calls[position], at) if version == "old" else ()
    return names


def old_columns(node: Aggregate, tables: Tables) -> dict[str, str]:
    """The old value of each accumulator by name, as SQL over the newest stored states."""
    columns: dict[str, str] = {}
    for n, value_state in enumerate(tables.value_states):
        state = _old_state(n)
        stored = f"({state} IS NOT NULL AND {state}.{STATE_WEIGHT} > 0)"
        if not columns:  # the first table
            columns[f"_old{GROUP_ROWS}"] = f"coalesce(IF({stored}, {state}.{quoted(GROUP_ROWS)}, NULL), 0L)"
            columns["_stored_old"] = f"coalesce({stored}, false)"
        for position, names in value_state.names.items():
            old = Version("old", position)
            for accumulator in _accumulators(node, position, tables):
                value = f"IF({stored}, {state}.{quoted(names[accumulator.column])}, NULL)"
                columns[old[accumulator.column]] = f"coalesce({value}, {accumulator.initial})" if accumulator.initial else value
    return columns


def _no_columns(node: Aggregate, tables: Tables) -> dict[str, str]:
    """As :func:`old_columns`, of groups that no state is stored of."""
    columns = {f"_old{GROUP_ROWS}": "0L", "_stored_old": "false"}
    for position in tables.kept:
        old = Version("old", position)
        for accumulator in _accumulators(node, position, tables):
            columns[old[accumulator.column]] = accumulator.initial or f"CAST(NULL AS {accumulator.data_type})"
    return columns


def result(node: Aggregate, tables: Tables, position: int, version: str) -> str:
    """A call's value (SQL) in one version of its group, in Spark's type."""
    return tables.kinds[position].result(node.calls[position], Version(version, position))


def derived_of(node: Aggregate, tables: Tables, version: str) -> list[str]:
    """Columns that results are made of in one version, as named SQL over accumulators."""
    derived: dict[str, str] = {}
    for position in tables.kept:
        derived |= tables.kinds[position].derived(node.calls[position], Version(version, position))
    return [f"{sql} AS {name}" for name, sql in derived.items()]


def stored_rows(node: Aggregate, tables: Tables) -> list[tuple[StateTable, list[str]]]:
    """Rows that tables store of an affected group.

    New accumulators, or a tombstone where it has no rows left.

    Returns
    -------
    The tables, each with its columns and ``_weight`` as SQL over what :func:`versions` gives.
    """
    group = columns_of(node.group)
    rows_new, rows_old = f"_new{GROUP_ROWS}", f"_old{GROUP_ROWS}"
    group_exists = f"{rows_new} > 0" if node.group else "true"
    problem = text_literal(
        f"more rows of a group are retracted than it has (aggregate by "
        f"{', '.join(node.group) or 'nothing'}); input and state contradict each other, rebuild with --full-refresh"
    )
    weight = (
        f"CASE WHEN {rows_new} < 0 THEN CAST(raise_error({problem}) AS bigint) "
        f"WHEN {group_exists} THEN 1L WHEN {rows_old} > 0 THEN -1L ELSE 0L END AS {WEIGHT}"
    )
    rows = []
    for state in tables.value_states:
        sources = {name: Version("new", p)[column] for p, names in state.names.items() for column, name in names.items()}
        sources[GROUP_ROWS] = f"_new{GROUP_ROWS}"
        columns = [c.name for c in state.table.desc.schema.columns if c.name not in node.group]
        rows.append((state.table, [*group, *(f"{sources[name]} AS {quoted(name)}" for name in columns), weight]))
    return rows
