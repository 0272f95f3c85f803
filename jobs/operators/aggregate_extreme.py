"""Extreme state: min and max by the first values of a group, kept apart.

How often each value occurs in a group is in the counts, in the order in which the extreme comes first. Next to them, in
value state, is a prefix of the group. It has the first values, up to ``state.extreme_rows`` of them, each with its count,
and whether these are all values of the group (``complete``). A group has counts once it has other values than these: then
all of its values are written there, and its prefix stays incomplete until it has none.

Of a change only values that sort no later than the last value kept touch the prefix; if the prefix is complete, all do.
Adding them gives the prefix of the new group up to the same place. So neither an insert nor a delete reads the counts; they
are written without being looked at. Only a group whose kept values have all been deleted, while there may be others, has
its counts read, and a new prefix taken from them.

Of the values that occur more often after the change, the first k + 1 are enough to find the first k and whether there are
more. Of the values that occur less often, the first k are enough. They occurred before, so any of them that sorts within
the prefix is in it. What is kept and compared of a group is bounded, however many of its values change. Where a complete
prefix has more values than are to be kept now, the next one is taken from it and the change.

Views planned before have counts of all groups.

Where the state is new, the first values of all calls are found in one grouping. Counts are computed only if a group needs
them.

Cost: |Δ|, and all values of a group each time that deletions have used up its first ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.engine.spark_versions.first_values import FirstValues, first_values
from relstate_dagster.jobs.operators.aggregate_counted import (
    changed_counts,
    contradiction,
    counted,
    never_negative,
    reconciled_counts,
    values_of,
)
from relstate_dagster.jobs.operators.aggregate_group import Affected, GroupFrames, Tables, only, same_group
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.aggregates.extreme import COMPLETE, FIRST, first_value_type, value_of_first
from relstate_dagster.jobs.plan.aggregates.kind import CallStrategy, Version
from relstate_dagster.jobs.plan.nodes import AggCall, Aggregate
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.row_encoding.spark_codec import interval_as_integer
from relstate_dagster.state_lib.sql_text import quoted

_RAN_OUT = "_ran_out"
_HAS_COUNTS, _GETS_COUNTS = "_has_counts", "_gets_counts"


def fold(
    ctx: EpochContext,
    node: Aggregate,
    call: AggCall,
    position: int,
    delta: RowSet,
    tables: Tables,
    frames: GroupFrames,
) -> RowSet:
    """Add the first changed values per group.

    Returns
    -------
    The changed counts.
    """
    changed = changed_counts(ctx, node, call, delta)
    if not _has_few_counts(tables, position):
        changed = reconciled_counts(ctx, node, call, tables.counts[position], changed)
        tables.counts[position].write(changed.frame)
    more, fewer = f"_more_{position}", f"_fewer_{position}"
    wanted = {more: (f"{WEIGHT} > 0", ctx.extreme_rows + 1), fewer: (f"{WEIGHT} < 0", ctx.extreme_rows)}
    folded = _firsts(node, tables, position, _as_kept(node, call, changed.frame), wanted)
    frames.add(folded, {more: only(more), fewer: only(fewer)})
    return changed


def fold_all(
    ctx: EpochContext,
    node: Aggregate,
    calls: Mapping[int, AggCall],
    delta: RowSet,
    tables: Tables,
    frames: GroupFrames,
) -> dict[int, RowSet]:
    """Add the first values per group of all calls, where the state is new.

    Returns
    -------
    The counts of each call, not shared: few groups need them, if any.
    """
    counts = {position: ctx.row_sets.of(counted(node, call, delta.frame)) for position, call in calls.items()}
    for position, of_call in counts.items():
        if not _has_few_counts(tables, position):
            tables.counts[position].write(of_call.frame)
    most = ctx.extreme_rows + 1
    wanted = {f"_more_{p}": _first_values(tables, p, f"_value_{p}", f"_call = {p} AND {WEIGHT} > 0", most) for p in calls}
    folded = first_values(_counted_together(node, calls, delta.frame), node.group, wanted)
    frames.add(folded, {name: only(name) for name in wanted})
    return counts


def _counted_together(node: Aggregate, calls: Mapping[int, AggCall], rows: DataFrame) -> DataFrame:
    """Counts of the values of several calls.

    Returns
    -------
    The group, the position of the call (``_call``), a column of values for each call, and ``_weight``.
    """

    def of_call(position: int) -> str:
        columns = [f"{position} AS _call", f"{quoted(calls[position].arguments[0])} IS NOT NULL AS _is_there"]
        for p, call in calls.items():
            value = quoted(call.arguments[0]) if p == position else "NULL"
            columns.append(f"CAST({value} AS {call.argument_types[0]}) AS _value_{p}")
        return f"struct({', '.join(columns)})"

    group, values = columns_of(node.group), [f"_value_{p}" for p in calls]
    each = rows.selectExpr(*group, WEIGHT, f"inline(array({', '.join(map(of_call, calls))}))").where("_is_there")
    summed = each.groupBy(*group, "_call", *values).agg(F.sum(WEIGHT).alias(WEIGHT))
    kept = [_kept_value(call, f"_value_{p}").alias(f"_value_{p}") for p, call in calls.items()]
    return summed.select(*group, "_call", *kept, WEIGHT)


def _as_kept(node: Aggregate, call: AggCall, counts: DataFrame) -> DataFrame:
    """Counted values in the type in which they are kept, as ``_value``."""
    (name,) = values_of(call)
    return counts.select(*columns_of(node.group), _kept_value(call, name).alias("_value"), WEIGHT)


def _kept_value(call: AggCall, column: str) -> Column:
    of_value, value = call.types[0], F.col(column)
    if of_value.interval_unit is not None:
        value = interval_as_integer(value, parse_type(of_value.ddl))
    return value.cast(first_value_type(of_value))


def _firsts(
    node: Aggregate, tables: Tables, position: int, kept: DataFrame, wanted: Mapping[str, tuple[str, int]]
) -> DataFrame:
    """First values of each group with counts, of rows as in :func:`_as_kept`."""
    arrays = {name: _first_values(tables, position, "_value", rows, most) for name, (rows, most) in wanted.items()}
    return first_values(kept, node.group, arrays)


def _first_values(tables: Tables, position: int, value: str, rows: str, most: int) -> FirstValues:
    """First values of a call with counts, out of a column of counted values."""
    return FirstValues(value, f"struct({value} AS value, {WEIGHT} AS count)", rows, most, _is_descending(tables, position))


def _is_descending(tables: Tables, position: int) -> bool:
    """Whether the greatest values of a group come first."""
    counted = tables.kinds[position].counted
    return counted is not None and counted.descending


def _has_few_counts(tables: Tables, position: int) -> bool:
    """Whether groups with a complete prefix have no counts."""
    counted = tables.kinds[position].counted
    return counted is not None and counted.only_of_others


def with_new(ctx: EpochContext, node: Aggregate, tables: Tables, groups: DataFrame) -> DataFrame:
    """Add the new first values of each group, and whether they ran out."""
    for position, call in enumerate(node.calls):
        if tables.strategy(position) is CallStrategy.EXTREME:
            with_new_values = _with_first if ctx.state_is_new(node) else _with_new
            groups = with_new_values(ctx, call, position, tables, groups)
    return groups


def _with_first(ctx: EpochContext, call: AggCall, position: int, tables: Tables, groups: DataFrame) -> DataFrame:
    """As :func:`_with_new`, of groups that are all new."""
    now, more, most = Version("new", position), f"_more_{position}", ctx.extreme_rows
    return groups.selectExpr(
        "*",
        f"coalesce(slice({more}, 1, {most}), {_no_values(call)}) AS {now[FIRST]}",
        f"coalesce(size({more}) <= {most}, true) AS {now[COMPLETE]}",
        f"coalesce(size({more}) > {most}, false) AS {_GETS_COUNTS}_{position}",
    ).drop(more)


def _with_new(ctx: EpochContext, call: AggCall, position: int, tables: Tables, groups: DataFrame) -> DataFrame:
    was, now, most = Version("old", position), Version("new", position), ctx.extreme_rows
    old, complete, descending = was[FIRST], was[COMPLETE], _is_descending(tables, position)
    kept, whole, last, ordered, merged = (f"_{name}_{position}" for name in ("kept", "whole", "last", "ordered", "merged"))
    few_counts = _has_few_counts(tables, position)
    # Another number of values may have been kept when the prefix was written.
    within, is_all = f"slice({old}, 1, {most})", f"{complete} AND size({old}) <= {most}"
    if few_counts:
        within, is_all = f"IF({complete}, {old}, {within})", complete
    groups = groups.selectExpr(
        "*", f"coalesce({within}, {_no_values(call)}) AS {kept}", f"coalesce({is_all}, true) AS {whole}"
    ).selectExpr("*", f"try_element_at({kept}, -1).value AS {last}")
    reaches = ">=" if descending else "<="
    touching = [
        f"coalesce(filter({changed}, e -> {whole} OR e.value {reaches} {last}), {_no_values(call)})"
        for changed in (f"_more_{position}", f"_fewer_{position}")
    ]
    # A column of its own: within a lambda it would be sorted again for each element.
    groups = groups.selectExpr(
        "*", f"sort_array(concat({kept}, {', '.join(touching)}), {'false' if descending else 'true'}) AS {ordered}"
    )
    # A value is there twice at most: as it was kept, and as it has changed.
    summed = (
        f"transform({ordered}, (e, i) -> struct(e.value AS value, IF(get({ordered}, i - 1).value <=> e.value, 0L, e.count + "
        f"IF(get({ordered}, i + 1).value <=> e.value, get({ordered}, i + 1).count, 0L)) AS count))"
    )
    # What is retracted of a group that has come back may not be of its rows.
    problem = "false" if ctx.may_have_expired else f"CAST({contradiction(call, tables.counts[position])} AS boolean)"
    # Of the values that occur less often, no more are known than are to be kept.
    is_long = f"size({kept}) > {most}" if few_counts else "false"
    groups = groups.selectExpr("*", f"filter({summed}, e -> IF(e.count < 0, {problem}, e.count > 0)) AS {merged}")
    return groups.selectExpr(
        "*",
        f"slice({merged}, 1, {most}) AS {now[FIRST]}",
        f"{whole} AND size({merged}) <= {most} AND NOT {is_long} AS {now[COMPLETE]}",
        f"NOT {whole} AND size({merged}) = 0 OR {is_long} AS {_RAN_OUT}_{position}",
        f"NOT {whole} AS {_HAS_COUNTS}_{position}",
        f"{whole} AND (size({merged}) > {most} OR {is_long}) AS {_GETS_COUNTS}_{position}",
    ).drop(kept, whole, last, ordered, merged, f"_more_{position}", f"_fewer_{position}")


def _no_values(call: AggCall) -> str:
    data_type = first_value_type(call.types[0])
    return f"CAST(array() AS array<struct<value: {data_type}, count: bigint>>)"


def refilled(
    ctx: EpochContext, node: Aggregate, tables: Tables, groups: RowSet, changed_by_call: Mapping[int, RowSet]
) -> DataFrame | None:
    """The groups, with prefixes taken from the counts where the kept values ran out.

    ``None`` where none did.

    Parameters
    ----------
    groups : shared, with their new first values.
    changed_by_call : the changed counts of each extreme call.
    """
    if ctx.state_is_new(node) or not any(changed.may_retract for changed in changed_by_call.values()):
        return None
    refilled: DataFrame | None = None
    for position, changed in changed_by_call.items():
        affected = _run_out(node, groups, position)
        if affected is not None:
            before = groups.frame if refilled is None else refilled
            refilled = _refilled(ctx, node, tables, position, changed, affected, before)
    return refilled


def write_counts(
    ctx: EpochContext, node: Aggregate, tables: Tables, groups: RowSet, changed_by_call: Mapping[int, RowSet]
) -> None:
    """Write changed counts of groups that have some, and those of groups that need them.

    Parameters as of :func:`refilled`.
    """
    if ctx.state_is_new(node):
        _write_first_counts(node, tables, groups, changed_by_call)
        return
    for position, changed in changed_by_call.items():
        if not _has_few_counts(tables, position):
            continue
        call, table = node.calls[position], tables.counts[position]
        names = [*node.group, *values_of(call)]
        having = _flagged(node, groups, f"{_HAS_COUNTS}_{position}")
        if not having.is_empty:
            of_these = ctx.row_sets.of(_of_groups(node, changed.frame, having))
            table.write(
                reconciled_counts(ctx, node, call, table, of_these.shared() if ctx.may_have_expired else of_these).frame
            )
        old = Version("old", position)[FIRST]
        getting = groups.where(f"{_GETS_COUNTS}_{position}", [*node.group, old])
        if getting.is_empty:
            continue
        changes = _of_groups(node, changed.frame, getting).select(*columns_of(names), WEIGHT)
        kept = _as_counts(node, call, old, getting.frame)
        summed = kept.union(changes).groupBy(*columns_of(names)).agg(F.sum(WEIGHT).alias(WEIGHT))
        # Less than none has been found out before.
        table.write(summed.where(f"{WEIGHT} > 0"))


def _write_first_counts(node: Aggregate, tables: Tables, groups: RowSet, counts: Mapping[int, RowSet]) -> None:
    """Write the counts of groups that need them, where the state is new."""
    flags = {position: f"{_GETS_COUNTS}_{position}" for position in counts if _has_few_counts(tables, position)}
    for position in groups.any_of(flags):
        names = [*node.group, *values_of(node.calls[position])]
        of_these = _of_groups(node, counts[position].frame, _flagged(node, groups, flags[position]))
        tables.counts[position].write(of_these.select(*columns_of(names), WEIGHT))


def _flagged(node: Aggregate, groups: RowSet, flag: str) -> RowSet:
    """The groups with a flag; of the one group of all rows, the flag itself."""
    return groups.where(flag, node.group or [flag])


def _of_groups(node: Aggregate, changed: DataFrame, groups: RowSet) -> DataFrame:
    """Changed counts of some groups, or of all rows where these are one group."""
    wanted = groups.broadcastable(groups.frame).alias("wanted")
    return changed.alias("changed").join(wanted, same_group(node.group, "changed", "wanted"), "left_semi")


def _as_counts(node: Aggregate, call: AggCall, first: str, groups: DataFrame) -> DataFrame:
    """Kept values of groups as rows of counts."""
    (name,) = values_of(call)
    each = groups.selectExpr(*columns_of(node.group), f"explode({first}) AS _kept")
    value = f"CAST({value_of_first(call, '_kept')} AS {call.argument_types[0]}) AS {name}"
    return each.selectExpr(*columns_of(node.group), value, f"_kept.count AS {WEIGHT}")


def _run_out(node: Aggregate, groups: RowSet, position: int) -> Affected | None:
    """The groups whose kept values ran out; ``None`` where none did."""
    keys = _flagged(node, groups, f"{_RAN_OUT}_{position}")
    if keys.is_empty:
        return None
    return Affected.by(keys, node.group) if node.group else Affected(keys.frame, None, None)


def _refilled(
    ctx: EpochContext,
    node: Aggregate,
    tables: Tables,
    position: int,
    changed: RowSet,
    affected: Affected,
    groups: DataFrame,
) -> DataFrame:
    call, table, most = node.calls[position], tables.counts[position], ctx.extreme_rows
    names = [*node.group, *values_of(call)]
    columns = columns_of(names)
    stored = affected.stored(table, node.group, names).select(*columns, F.col(STATE_WEIGHT).alias(WEIGHT))
    wanted = affected.groups.alias("wanted")
    rows = changed.frame.alias("changed").join(wanted, same_group(node.group, "changed", "wanted"), "left_semi")
    known = stored.union(rows.select(*columns, WEIGHT))
    if _has_few_counts(tables, position):
        long = groups.where(f"{_RAN_OUT}_{position} AND {_GETS_COUNTS}_{position}")
        known = known.union(_as_counts(node, call, Version("old", position)[FIRST], long))
    counts = known.groupBy(*columns).agg(F.sum(WEIGHT).alias(WEIGHT))
    occurring = counts.withColumn(WEIGHT, never_negative(F.col(WEIGHT), call, table)).where(f"{WEIGHT} > 0")
    found = f"_found_{position}"
    firsts = _firsts(node, tables, position, _as_kept(node, call, occurring), {found: (f"{WEIGHT} > 0", most + 1)})
    renamed = firsts.select(*(F.col(quoted(n)).alias(f"{found}_{i}") for i, n in enumerate(node.group)), found)
    condition: Column = F.lit(True)
    for n, name in enumerate(node.group):
        condition = condition & groups[quoted(name)].eqNullSafe(renamed[f"{found}_{n}"])
    joined = groups.join(renamed, condition, "left")
    ran_out, new = f"{_RAN_OUT}_{position}", Version("new", position)
    first, complete, few_counts = new[FIRST], new[COMPLETE], _has_few_counts(tables, position)
    chosen = {
        first: f"IF({ran_out}, coalesce(slice({found}, 1, {most}), {_no_values(call)}), {first})",
        complete: f"IF({ran_out}, coalesce(size({found}) <= {0 if few_counts else most}, true), {complete})",
    }
    kept = [f"{chosen[name]} AS {name}" if name in chosen else quoted(name) for name in groups.columns]
    return joined.selectExpr(*kept)
