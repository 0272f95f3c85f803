"""Top-n: the first rows by an order after an offset, old against new.

Without a limit, or with a very large one, the state is the materialized input, and the cost is that input. Otherwise:

State: materialized input, and its first rows once more, some more of them than are asked for. Ties are broken by all
columns, so that the same rows are chosen each time.

The rows kept are a prefix: all rows of the input up to the last one of them. Of a change set only what sorts no later than
that one touches the prefix, and adding it gives the prefix of the new input up to the same place. As long as that still has
enough rows, the input is not read. When deletions have used up the spare rows, the prefix is taken from the input again,
which is kept in the same order.

How far it has to be read then is not known. Fences give the values up to which a number of rows lay when all of it was last
read. Rows up to a fence are read from the files, row groups and pages that can have them. If these are too few, it is the
next fence's, and in the end all. So a fence never changes a result, however old it is.

Cost: |Δ|, and the first rows of the input each time that deletions have used up those kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.operators.aggregate_group import Affected
from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.materialized_input import contradiction, new_minus_old, old_and_new, received
from relstate_dagster.jobs.operators.ordering import by_order_then_all, not_after
from relstate_dagster.jobs.operators.row_rules import rows_by_rule
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of, repeat_by_weight
from relstate_dagster.jobs.plan.nodes import TopN
from relstate_dagster.jobs.plan.state_tables import AT, FENCE
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.literals import literal
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.row_sums import consolidate
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.tuning import tuning

_LAST: Final = "_last_"
_VERSION: Final = "_version"
#: How many times as many rows as are kept lie before each fence.
_FENCES: Final = (8, 64)


def change(ctx: EpochContext, node: TopN, child: RowSet | None) -> OperatorResult:
    """The rows that entered or left the first n."""
    if child is None:
        return OperatorResult(None)
    if not node.keeps_first or node.limit is None:
        return _change_of_all(ctx, node, child)
    wanted = node.limit + node.offset
    whole, first, *_ = ctx.tables[node]
    changed, before = ctx.in_parallel(partial(received, ctx, whole, node.child, child), partial(_first_rows, ctx, node, first))
    if changed is None:
        return OperatorResult(None)
    if before is None:
        after = _prefix(ctx, node, ctx.row_sets.of(_weights_checked(ctx, node, changed.frame)), wanted).frame
        first.write(after)
        return OperatorResult(ctx.row_sets.of(consolidate(_picked(node, after, 1), node.schema)))
    touching = _touching(ctx, node, before, changed, wanted).shared()
    if touching.is_empty:
        return OperatorResult(None)
    together = consolidate(before.frame.union(touching.frame), node.schema)
    kept = ctx.row_sets.shared(_weights_checked(ctx, node, together))
    total = kept.known_weight
    if total is None or (total < wanted and _has_more(before, wanted)):
        kept = _from_input(ctx, node, changed.frame, wanted)
    after = _prefix(ctx, node, kept, wanted).frame
    minus = before.frame.selectExpr(*columns_of(node.column_names), f"-{WEIGHT} AS {WEIGHT}")
    first.write(consolidate(after.union(minus), node.schema))
    changes = consolidate(_picked(node, before.frame, -1).union(_picked(node, after, 1)), node.schema)
    return OperatorResult(ctx.row_sets.of(changes))


def _change_of_all(ctx: EpochContext, node: TopN, child: RowSet) -> OperatorResult:
    """The change where no first rows are kept."""
    (table,) = ctx.tables[node]
    changed = received(ctx, table, node.child, child)
    if changed is None:
        return OperatorResult(None)
    everything = Affected(changed.frame, None, None)
    versions = ctx.row_sets.shared(old_and_new(ctx, node, table, (), changed, everything, _VERSION)).frame
    difference = new_minus_old(ctx, node, versions, _VERSION, lambda rows: rows_by_rule(node, [rows], ()))
    return OperatorResult(ctx.row_sets.of(consolidate(difference, node.schema)))


def _first_rows(ctx: EpochContext, node: TopN, first: StateTable) -> RowSet | None:
    """The first rows as of the last epoch; ``None`` where there was none."""
    return None if ctx.state_is_new(node) else ctx.row_sets.shared(_stored(first, node), summed=True)


def _stored(table: StateTable, node: TopN) -> DataFrame:
    columns = columns_of(node.column_names)
    return table.storage.runs(node.column_names).selectExpr(*columns, f"{STATE_WEIGHT} AS {WEIGHT}")


def _from_input(ctx: EpochContext, node: TopN, changed: DataFrame, wanted: int) -> RowSet:
    """The input from its first row on, as far as rows are likely needed."""
    whole, _, *fences = ctx.tables[node]
    rows = _stored(whole, node).union(changed)
    for fence in _before_fences(node, fences):
        near = ctx.row_sets.shared(_weights_checked(ctx, node, consolidate(rows.where(fence), node.schema)))
        total = near.known_weight
        # Half of the spare rows: it would else be read again soon.
        if total is not None and total >= wanted + ctx.spare_rows // 2:
            return near
    now = _weights_checked(ctx, node, consolidate(rows, node.schema))
    positions = [times * (wanted + ctx.spare_rows) for times in _FENCES]
    positions = [position for position in positions if 0 < position <= tuning().fenced_rows]
    if not fences or not positions:
        return ctx.row_sets.of(now)
    first = ctx.row_sets.shared(now.orderBy(*by_order_then_all(node.order, node.schema)).limit(positions[-1]))
    values = first.values_at(node.order[0].column, positions)
    if values is not None:
        _write_fences(ctx, fences[0], values)
    return first


def _write_fences(ctx: EpochContext, fences: StateTable, values: pa.ChunkedArray) -> None:
    """Store values of the first ordering column at some positions."""
    numbers, weights = pa.array(range(len(values)), pa.int32()), pa.array([1] * len(values), pa.int64())
    rows = pa.table({FENCE: numbers, AT: values, WEIGHT: weights})
    types = {column.name: parse_type(column.data_type) for column in fences.desc.schema.columns}
    schema = T.StructType([T.StructField(name, types.get(name, T.LongType())) for name in (FENCE, AT, WEIGHT)])
    fences.write(ctx.row_sets.of_rows(rows, schema).frame)


def _before_fences(node: TopN, fences: Sequence[StateTable]) -> list[Column]:
    """Conditions of rows that sort no later than a fence, nearest first."""
    conditions = []
    for table in fences:  # of which there are none where nothing is sorted by
        order = node.order[0]
        column, data_type = F.col(quoted(order.column)), node.field_named(order.column).data_type
        found = table.storage.scan(columns=[FENCE, AT]).toArrow()
        for value in found.sort_by(FENCE)[AT].to_pylist():
            at = literal(value, data_type)
            if value is None and order.nulls_last:
                continue  # everything sorts before it
            if value is None or at is None:
                conditions.append(column.isNull())
                continue
            before = column >= at if order.descending else column <= at
            conditions.append(before if order.nulls_last else before | column.isNull())
    return conditions


def _has_more(prefix: RowSet, wanted: int) -> bool:
    """Whether the input may have rows after a prefix.

    A prefix that is too short is all of the input.
    """
    total = prefix.known_weight
    return total is None or total >= wanted


def _touching(ctx: EpochContext, node: TopN, prefix: RowSet, changed: RowSet, wanted: int) -> RowSet:
    """Changed rows that sort no later than the prefix's last row.

    All of them if the prefix is the input.
    """
    if not _has_more(prefix, wanted):
        return changed
    names = node.column_names
    backwards = by_order_then_all(node.order, node.schema, backwards=True)
    renamed = [F.col(column).alias(f"{_LAST}{n}") for n, column in enumerate(columns_of(names))]
    last = prefix.frame.orderBy(*backwards).limit(1).select(*renamed)
    condition = not_after(node.order, node.schema, [f"{_LAST}{n}" for n in range(len(names))])
    near = changed.frame.join(last.hint("broadcast"), F.expr(condition), "inner")
    return ctx.row_sets.of(near.select(*columns_of(names), WEIGHT))


def _prefix(ctx: EpochContext, node: TopN, rows: RowSet, wanted: int) -> RowSet:
    """First of some consolidated rows, with all of their weights.

    Those asked for, and the spare ones.
    """
    if rows.most_rows <= wanted + ctx.spare_rows:
        return rows
    ordered = rows.frame.orderBy(*by_order_then_all(node.order, node.schema))
    return ctx.row_sets.shared(ordered.limit(wanted + ctx.spare_rows))


def _picked(node: TopN, prefix: DataFrame, weight: int) -> DataFrame:
    """Rows of the query's result out of a prefix, each copy apart."""
    assert node.limit is not None
    enough = f"least({WEIGHT}, {node.limit + node.offset}L) AS {WEIGHT}"
    copies = repeat_by_weight(prefix.selectExpr(*columns_of(node.column_names), enough), WEIGHT)
    return rows_by_rule(node, [copies], ()).withColumn(WEIGHT, F.lit(weight).cast("bigint"))


def _weights_checked(ctx: EpochContext, node: TopN, rows: DataFrame) -> DataFrame:
    problem = text_literal(contradiction(ctx.tables[node][0]))
    checked = f"IF({WEIGHT} < 0, CAST(raise_error({problem}) AS bigint), {WEIGHT}) AS {WEIGHT}"
    return rows.selectExpr(*columns_of(node.column_names), checked)
