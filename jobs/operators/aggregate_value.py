"""Value state: new accumulators = old accumulators + the folded change, per affected group.

Accumulators by call (``w`` is the weight of a changed row, ``x`` the argument):

=========  ==================================================  ===============================
call       change                                              result
=========  ==================================================  ===============================
count(*)   Σ w                                                 count
count(x)   Σ w where x is not NULL                             count
sum(x)     Σ w·x and Σ w where x is not NULL                   sum where count > 0, else NULL
avg(x)     as sum                                              sum / count where count > 0
min, max   min / max of x (append-only input: all w are > 0)   least / greatest of old and change
=========  ==================================================  ===============================

The first table also keeps the number of rows of the group. Sums are kept wide and checked on output: an overflow is
then one of the result and not of the order in which changes came.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.operators.aggregate_group import Affected, GroupFrames, Tables, only
from jobs.operators.context import EpochContext, columns_of
from jobs.planner.nodes import AggCall, Aggregate, quoted
from jobs.planner.state_tables import COUNT, EXTREME, GROUP_ROWS, SUM, decimal_parts, sum_type
from state_lib.constants import EPOCH, STATE_WEIGHT, WEIGHT
from state_lib.shared_lookup import lookup_several
from state_lib.state_table import StateTable


def fold(ctx: EpochContext, node: Aggregate, delta: DataFrame, tables: Tables, frames: GroupFrames) -> Affected | None:
    """Fold the change per group, add the frames of change and old state; returns the affected groups, ``None`` if none."""
    group = columns_of(node.group)
    folds = [F.sum(WEIGHT).alias(f"_d{GROUP_ROWS}")]
    picks: dict[str, Column] = {f"_d{GROUP_ROWS}": only(f"_d{GROUP_ROWS}")}
    for position, table in tables.value_tables.items():
        if position < 0:
            continue
        call = node.calls[position]
        for name in _accumulators(table, node):
            folds.append(_change_of(call, name).alias(f"_d{name}_{position}"))
            picks[f"_d{name}_{position}"] = only(f"_d{name}_{position}")
    folded = ctx.share(delta.groupBy(*group).agg(*folds))
    if ctx.is_empty(folded):
        return None
    frames.add(folded, picks)
    first = node.group[:1]
    within = ctx.within(folded, list(zip(first, first, strict=True)), null_safe=True)
    affected = Affected(folded.select(*group), within, ctx.hint(folded))
    if ctx.is_backfill:
        for position, table in tables.value_tables.items():
            names = [*(c.name for c in table.desc.schema.columns if c.name not in node.group), STATE_WEIGHT]
            fields = [F.lit(None).cast(_type_of(table, n)).alias(n) for n in names]
            frames.measures[f"_old_state_{position}"] = F.first(F.struct(*fields))
        return affected
    stored = [table.storage for table in tables.value_tables.values()]
    old = lookup_several(stored, affected.groups, node.group, hint=affected.hint, within=affected.within)
    newest = {
        f"_old_state_{position}": F.max_by(f"_state_{n}", f"{EPOCH}_{n}") for n, position in enumerate(tables.value_tables)
    }
    frames.add(old, newest)
    return affected


def _type_of(table: StateTable, name: str) -> str:
    return "bigint" if name == STATE_WEIGHT else table.desc.schema.column_type(name)


def _accumulators(table: StateTable, node: Aggregate) -> list[str]:
    return [c.name for c in table.desc.schema.columns if c.name not in node.group and c.name != GROUP_ROWS]


def _change_of(call: AggCall, accumulator: str) -> Column:
    weight = F.col(WEIGHT)
    if accumulator == EXTREME:
        folding = F.min if call.function == "min" else F.max
        return folding(quoted(call.arguments[0]))
    present = F.lit(True)
    for argument in call.arguments:
        present = present & F.col(quoted(argument)).isNotNull()
    if accumulator == COUNT:
        return F.coalesce(F.sum(F.when(present, weight)), F.lit(0).cast("bigint"))
    kept_as = sum_type(call.argument_types[0])
    return F.coalesce(F.sum(weighted_value(call)).cast(kept_as), F.lit(0).cast(kept_as))


def weighted_value(call: AggCall) -> Column:
    """The argument times the weight, in a type that loses no digit of it."""
    value, data_type, weight = F.col(quoted(call.arguments[0])), call.argument_types[0], F.col(WEIGHT)
    parts = decimal_parts(data_type)
    if parts is None:
        return value.cast(sum_type(data_type)) * (weight.cast("decimal(18,0)") if data_type == "bigint" else weight)
    precision, _ = parts
    times = weight.cast("decimal(10,0)")
    if precision + 11 <= 38:
        many = value * times
    else:
        # The product would lose digits to keep its precision at 38: add the value as often as it occurs instead.
        kept = data_type = sum_type(data_type)
        value = one = value.cast(kept)
        many = F.aggregate(
            F.array_repeat(F.when(weight < 0, F.lit(0).cast(kept) - one).otherwise(one), F.abs(weight).cast("int")),
            F.lit(0).cast(kept),
            lambda total, x: (total + x).cast(kept),
        )
    # Spark's unary minus keeps 34 digits of a decimal only; a subtraction keeps them all.
    return F.when(weight == 1, value).when(weight == -1, F.lit(0).cast(data_type) - value).otherwise(many)


def versions(node: Aggregate, tables: Tables, groups: DataFrame) -> DataFrame:
    """Add, for each accumulator, its old and its new value to the grouped measures."""
    columns: dict[str, Column] = {}
    for position, table in tables.value_tables.items():
        state = F.col(f"_old_state_{position}")
        stored = state.isNotNull() & (state.getField(STATE_WEIGHT) > 0)
        for column in table.desc.schema.columns:
            if column.name in node.group:
                continue
            old = F.when(stored, state.getField(column.name))
            if column.name == GROUP_ROWS:
                before = F.coalesce(old, F.lit(0).cast("bigint"))
                columns[f"_old{GROUP_ROWS}"] = before
                columns[f"_new{GROUP_ROWS}"] = before + F.coalesce(F.col(f"_d{GROUP_ROWS}"), F.lit(0).cast("bigint"))
                columns["_stored_old"] = F.coalesce(stored, F.lit(False))
                columns["_stored_new"] = F.lit(True)
                continue
            changed = F.col(f"_d{column.name}_{position}")
            call = node.calls[position]
            if column.name == EXTREME:
                new = F.least(old, changed) if call.function == "min" else F.greatest(old, changed)
            else:
                old = F.coalesce(old, F.lit(0).cast(column.data_type))
                new = (old + F.coalesce(changed, F.lit(0).cast(column.data_type))).cast(column.data_type)
            columns[f"_old{column.name}_{position}"] = old
            columns[f"_new{column.name}_{position}"] = new
    return groups.withColumns(columns)


def result(call: AggCall, position: int, version: str) -> Column:
    """The call's value out of its accumulators, in the type that Spark gives the call."""
    result_type = call.output.data_type
    if call.function in ("min", "max"):
        return F.col(f"_{version}{EXTREME}_{position}").cast(result_type)
    count = F.col(f"_{version}{COUNT}_{position}")
    if call.function == "count":
        return count
    total = F.col(f"_{version}{SUM}_{position}")
    if call.function == "sum":
        return F.when(count > 0, total.cast(result_type))
    parts = decimal_parts(call.argument_types[0])
    if parts is None:
        return F.when(count > 0, total.cast("double") / count.cast("double"))
    precision, scale = parts
    # As Spark's own avg: the sum's type, divided by the count as a decimal(20,0).
    spark_sum = total.cast(f"decimal({min(precision + 10, 38)},{scale})")
    return F.when(count > 0, (spark_sum / count.cast("decimal(20,0)")).cast(result_type))


def write(ctx: EpochContext, node: Aggregate, tables: Tables, groups: DataFrame) -> None:
    """Write the new accumulators of every affected group, or a tombstone for a group that has no rows left."""
    group = columns_of(node.group)
    rows_new, rows_old = F.col(f"_new{GROUP_ROWS}"), F.col(f"_old{GROUP_ROWS}")
    lives = F.lit(True) if not node.group else rows_new > 0
    problem = F.lit(
        f"epoch {ctx.epoch}: more rows of a group are retracted than it has (aggregate by "
        f"{', '.join(node.group) or 'nothing'}); input and state contradict each other, rebuild with --full-refresh"
    )
    weight = (
        F.when(rows_new < 0, F.raise_error(problem).cast("bigint"))
        .when(lives, F.lit(1).cast("bigint"))
        .when(rows_old > 0, F.lit(-1).cast("bigint"))
        .otherwise(F.lit(0).cast("bigint"))
    )
    for position, table in tables.value_tables.items():
        values = []
        for column in table.desc.schema.columns:
            if column.name in node.group:
                continue
            source = f"_new{GROUP_ROWS}" if column.name == GROUP_ROWS else f"_new{column.name}_{position}"
            values.append(F.col(source).alias(column.name))
        table.write(groups.select(*group, *values, weight.alias(WEIGHT)).where(F.col(WEIGHT) != 0))
