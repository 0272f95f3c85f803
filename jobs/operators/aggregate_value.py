"""Value state: new accumulators = old accumulators + the folded change, per affected group.

Accumulators by call (``w`` is the weight of a changed row, ``x`` the argument):

=========  ==================================================  ===============================
call       change                                              result
=========  ==================================================  ===============================
count(*)   Σ w                                                 count
count(x)   Σ w where x is not NULL                             count
sum(x)     Σ w·x and Σ w where x is not NULL                   sum where count > 0, else NULL
           (long decimals: of low and of high parts of x)
avg(x)     as sum                                              sum / count where count > 0
min, max   min / max of x (append-only input: all w are > 0)   least / greatest of old and change
=========  ==================================================  ===============================

Calls of other strategies keep their results in value state, too: DISTINCT ones these accumulators, of a change that
:mod:`.jobs.operators.aggregate_distinct` finds; extremes the first values of the group
(:mod:`.jobs.operators.aggregate_extreme`).

The first table also keeps the number of rows of the group. Sums are kept wide and checked on output: an overflow is
then one of the result and not of the order in which changes came.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators import aggregate_extreme, aggregate_newest
from relstate_dagster.jobs.operators.aggregate_group import Affected, GroupFrames, Tables, only
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.planner.decimal_sums import DecimalSum, decimal_sum
from relstate_dagster.jobs.planner.nodes import AggCall, Aggregate
from relstate_dagster.jobs.planner.state_tables import (
    COMPLETE,
    COUNT,
    EXTREME,
    FIRST,
    GROUP_ROWS,
    HIGH,
    CallStrategy,
    sum_column,
    sum_type,
)
from relstate_dagster.state_lib.constants import EPOCH, STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.shared_lookup import lookup_several
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.tuning import tuning


def fold(ctx: EpochContext, node: Aggregate, delta: DataFrame, tables: Tables, frames: GroupFrames) -> Affected | None:
    """Fold the change per group, add the frames of change and old state; returns the affected groups, ``None`` if none."""
    folds = _folds(node, tables, is_backfill=ctx.is_backfill)
    folded = _folded(node, delta, folds)
    if ctx.is_backfill:
        nothing = {_old_state(position): _no_state(node, table) for position, table in tables.value_tables.items()}
        afresh = folded.selectExpr("*", *(f"{sql} AS {name}" for name, sql in nothing.items()))
        frames.add(afresh, {name: only(name) for name in [*folds, *nothing]})
        return Affected(folded.select(*columns_of(node.group)), None, None)
    folded = ctx.frames.share(folded)
    if ctx.frames.is_empty(folded):
        return None
    frames.add(folded, {name: only(name) for name in folds})
    affected = Affected.by(ctx, folded, node.group)
    stored = [table.storage for table in tables.value_tables.values()]
    old = lookup_several(stored, affected.groups, node.group, hint=affected.hint, lookup_keys=affected.lookup_keys)
    frames.add(old, newest(tables))
    return affected


def is_read_whole(ctx: EpochContext, tables: Tables) -> bool:
    """Whether the old state is so little that nothing is gained by knowing the affected groups before it is read."""
    if ctx.is_backfill or not ctx.frames.held or tables.input is not None:
        return False
    return few_rows(tables) is not None


def few_rows(tables: Tables) -> int | None:
    """How many rows old state has, where they are so few that they are read whole; else ``None``."""
    stored = [table.storage for table in tables.value_tables.values()]
    rows = stored[0].row_count_of([table.desc.table_id for table in stored])
    return rows if rows is not None and rows <= tuning().whole_state_rows else None


def fold_into_all(node: Aggregate, delta: DataFrame, tables: Tables, frames: GroupFrames) -> None:
    """Fold the change per group, add the frames of change and all of the old state: no step to find the groups first."""
    folds = _folds(node, tables, is_backfill=False)
    frames.add(_folded(node, delta, folds), {name: only(name) for name in folds})
    stored = [table.storage for table in tables.value_tables.values()]
    frames.add(lookup_several(stored, None, node.group), newest(tables))


def _folds(node: Aggregate, tables: Tables, *, is_backfill: bool) -> dict[str, str]:
    folds = {f"_d{GROUP_ROWS}": f"sum({WEIGHT})"}
    for position in tables.by_call:
        if tables.strategy(position) is CallStrategy.VALUE:
            folds |= folds_of(node, node.calls[position], position, tables)
    return folds | aggregate_newest.folds(node, is_backfill=is_backfill)


def folds_of(node: Aggregate, call: AggCall, position: int, tables: Tables) -> dict[str, str]:
    """What the accumulators of a call change by, as aggregates (SQL) over weighted rows with the call's arguments, by name."""
    names = _accumulators(tables.by_call[position], node)
    return {f"_d{name}_{position}": _change_of(call, name) for name in names}


def _folded(node: Aggregate, delta: DataFrame, folds: Mapping[str, str]) -> DataFrame:
    return delta.groupBy(*columns_of(node.group)).agg(*(F.expr(f"{sql} AS {name}") for name, sql in folds.items()))


def newest(tables: Tables) -> dict[str, str]:
    """The aggregate (SQL) that picks each table's newest state of a group out of what a lookup finds."""
    return {_old_state(p): f"max_by(_state_{n}, {EPOCH}_{n})" for n, p in enumerate(tables.value_tables)}


def _old_state(position: int) -> str:
    return f"_old_state_{position}" if position >= 0 else "_old_state_of_group"


def _no_state(node: Aggregate, table: StateTable) -> str:
    """The state, as SQL, of a group that none is stored of."""
    types = {c.name: c.data_type for c in table.desc.schema.columns if c.name not in node.group} | {STATE_WEIGHT: "bigint"}
    return f"struct({', '.join(f'CAST(NULL AS {data_type}) AS {quoted(name)}' for name, data_type in types.items())})"


def _accumulators(table: StateTable, node: Aggregate) -> list[str]:
    return [c.name for c in table.desc.schema.columns if c.name not in node.group and c.name != GROUP_ROWS]


def _change_of(call: AggCall, accumulator: str) -> str:
    if accumulator == EXTREME:
        return f"{call.function}({quoted(call.arguments[0])})"
    if accumulator == COUNT:
        present = " AND ".join(f"{quoted(argument)} IS NOT NULL" for argument in call.arguments) or "true"
        return f"coalesce(sum(IF({present}, {WEIGHT}, NULL)), 0L)"
    decimals, value = decimal_sum(call.argument_types[0]), quoted(call.arguments[0])
    if accumulator == HIGH and decimals:
        return f"coalesce(sum({decimals.weighted_high(value, WEIGHT)}), 0L)"
    kept_as = sum_type(call.argument_types[0])
    if decimals:
        weighted = decimals.weighted(value, WEIGHT)
    else:
        weight = f"CAST({WEIGHT} AS decimal(18,0))" if call.argument_types[0] == "bigint" else WEIGHT
        weighted = f"CAST({value} AS {kept_as}) * {weight}"
    return f"coalesce(CAST(sum({weighted}) AS {kept_as}), CAST(0 AS {kept_as}))"


def versions(ctx: EpochContext, node: Aggregate, tables: Tables, groups: DataFrame) -> DataFrame:
    """Add, for each accumulator that is added to, its old and its new value to the grouped measures; of others the old one.

    No count is negative where rows may have expired: what is retracted of a group that has come back may not be of its rows.
    """

    def counted(count: str) -> str:
        return f"greatest({count}, 0L)" if ctx.may_have_expired else count

    columns = old_columns(node, tables)
    for position, table in tables.value_tables.items():
        for column in table.desc.schema.columns:
            if column.name in node.group:
                continue
            if column.name == GROUP_ROWS:
                columns[f"_new{GROUP_ROWS}"] = counted(f"{columns[f'_old{GROUP_ROWS}']} + coalesce(_d{GROUP_ROWS}, 0L)")
                columns["_stored_new"] = "true"
                continue
            if column.name in (FIRST, COMPLETE):
                continue
            old, changed = columns[f"_old{column.name}_{position}"], f"_d{column.name}_{position}"
            if column.name == EXTREME:
                new = f"{'least' if node.calls[position].function == 'min' else 'greatest'}({old}, {changed})"
            else:
                new = f"CAST({old} + coalesce({changed}, CAST(0 AS {column.data_type})) AS {column.data_type})"
                new = counted(new) if column.name == COUNT else new
            columns[f"_new{column.name}_{position}"] = new
    accumulated = groups.selectExpr("*", *(f"{sql} AS {name}" for name, sql in columns.items()))
    totals = [*totals_of(node, tables, "old"), *totals_of(node, tables, "new")]
    return accumulated.selectExpr("*", *totals) if totals else accumulated


def old_columns(node: Aggregate, tables: Tables) -> dict[str, str]:
    """The old value of each accumulator by name, as SQL over the newest stored states."""
    columns: dict[str, str] = {}
    for position, table in tables.value_tables.items():
        state = _old_state(position)
        stored = f"({state} IS NOT NULL AND {state}.{STATE_WEIGHT} > 0)"
        for column in table.desc.schema.columns:
            if column.name in node.group:
                continue
            old = f"IF({stored}, {state}.{quoted(column.name)}, NULL)"
            if column.name == GROUP_ROWS:
                columns[f"_old{GROUP_ROWS}"] = f"coalesce({old}, 0L)"
                columns["_stored_old"] = f"coalesce({stored}, false)"
            elif column.name in (EXTREME, FIRST, COMPLETE):
                columns[f"_old{column.name}_{position}"] = old
            else:
                columns[f"_old{column.name}_{position}"] = f"coalesce({old}, CAST(0 AS {column.data_type}))"
    return columns


def result(tables: Tables, call: AggCall, position: int, version: str) -> str:
    """The call's value out of its value state, in the type that Spark gives the call."""
    if tables.strategy(position) is CallStrategy.EXTREME:
        return aggregate_extreme.result(call, position, version)
    result_type = call.output.data_type
    if call.function in ("min", "max"):
        return f"CAST(_{version}{EXTREME}_{position} AS {result_type})"
    count = f"_{version}{COUNT}_{position}"
    if call.function == "count":
        return count
    kept = f"_{version}{sum_column(call)}_{position}"
    decimals = decimal_sum(call.argument_types[0])
    total = decimals.total(kept, None) if decimals else kept
    total = f"_{version}_total_{position}" if _has_total(call, decimals) else total
    if call.function == "sum":
        return f"IF({count} > 0, CAST({total} AS {result_type}), NULL)"
    mean = decimals.mean(total, count) if decimals else f"CAST({total} AS double) / CAST({count} AS double)"
    return f"IF({count} > 0, CAST({mean} AS {result_type}), NULL)"


def totals_of(node: Aggregate, tables: Tables, version: str) -> list[str]:
    """Totals of decimal sums in one version, as named SQL over accumulators."""
    totals = []
    for position in tables.by_call:
        call = node.calls[position]
        decimals = decimal_sum(call.argument_types[0]) if call.function in ("sum", "avg") else None
        if decimals is None or not _has_total(call, decimals):
            continue
        low, high, count = (f"_{version}{part}_{position}" for part in (sum_column(call), HIGH, COUNT))
        total = decimals.total(low, high if decimals.has_high_part else None)
        totals.append(f"IF({count} > 0, {total}, NULL) AS _{version}_total_{position}")
    return totals


def _has_total(call: AggCall, decimals: DecimalSum | None) -> bool:
    if decimals is None:
        return False
    return decimals.has_high_part or (call.function == "avg" and decimals.mean_reads_total)


def stored_rows(ctx: EpochContext, node: Aggregate, tables: Tables) -> list[tuple[StateTable, list[str]]]:
    """What each table stores of an affected group: the new accumulators, or a tombstone where it has no rows left.

    Returns
    -------
    The tables, each with its columns and ``_weight`` as SQL over what :func:`versions` gives.
    """
    group = columns_of(node.group)
    rows_new, rows_old = f"_new{GROUP_ROWS}", f"_old{GROUP_ROWS}"
    lives = f"{rows_new} > 0" if node.group else "true"
    problem = text_literal(
        f"more rows of a group are retracted than it has (aggregate by "
        f"{', '.join(node.group) or 'nothing'}); input and state contradict each other, rebuild with --full-refresh"
    )
    weight = (
        f"CASE WHEN {rows_new} < 0 THEN CAST(raise_error({problem}) AS bigint) "
        f"WHEN {lives} THEN 1L WHEN {rows_old} > 0 THEN -1L ELSE 0L END AS {WEIGHT}"
    )
    rows = []
    for position, table in tables.value_tables.items():
        values = []
        for column in table.desc.schema.columns:
            if column.name in node.group:
                continue
            source = f"_new{GROUP_ROWS}" if column.name == GROUP_ROWS else f"_new{column.name}_{position}"
            values.append(f"{source} AS {quoted(column.name)}")
        rows.append((table, [*group, *values, weight]))
    return rows
