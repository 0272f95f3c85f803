"""Top-n: the first rows by an order after an offset, old against new.

State: materialized input, and its first rows once more, some more of them than are asked for. Ties are broken by all
columns, so that the same rows are chosen each time.

The rows kept are a prefix: all rows of the input up to the last one of them. Of a change set only what sorts no later than
that one touches the prefix, and adding it gives the prefix of the new input up to the same place. As long as that still has
enough rows the input is not read; when deletions have used up the spare ones, the prefix is taken from the whole input
again. Cost: |Δ|, and the input each time that deletions have used up the first rows.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators import top_n_input
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.materialized_input import contradiction, received
from relstate_dagster.jobs.operators.ordering import by_order_then_all, not_after
from relstate_dagster.jobs.operators.z_sets import columns_of, consolidate, repeat_by_weight
from relstate_dagster.jobs.planner.nodes import TopN
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.sql_text import text_literal
from relstate_dagster.state_lib.state_table import StateTable

_LAST: Final = "_last_"


def change(ctx: EpochContext, node: TopN, child: DataFrame | None) -> DataFrame | None:
    """The rows that entered or left the first n."""
    if not node.keeps_first or node.limit is None:
        return top_n_input.change(ctx, node, child)
    if child is None:
        return None
    wanted = node.limit + node.offset
    whole, first = ctx.tables[node]
    changed, before = ctx.at_once(partial(received, ctx, whole, node.child, child), partial(_first_rows, ctx, node, first))
    if changed is None:
        return None
    if before is None:
        after = _prefix(ctx, node, _weights_checked(ctx, node, changed), wanted)
        first.write(after)
        return consolidate(_picked(node, after, 1), node.column_names)
    touching = ctx.frames.share(_touching(ctx, node, before, changed, wanted))
    if ctx.frames.is_empty(touching):
        return None
    kept = ctx.frames.share(_weights_checked(ctx, node, consolidate(before.union(touching), node.column_names)))
    total = _total_weight(ctx, kept)
    if total is None or (total < wanted and _has_more(ctx, before, wanted)):
        now = consolidate(_stored(whole, node).union(changed), node.column_names)
        after = _prefix(ctx, node, _weights_checked(ctx, node, now), wanted)
    else:
        after = _prefix(ctx, node, kept, wanted)
    minus = before.selectExpr(*columns_of(node.column_names), f"-{WEIGHT} AS {WEIGHT}")
    first.write(consolidate(after.union(minus), node.column_names))
    return consolidate(_picked(node, before, -1).union(_picked(node, after, 1)), node.column_names)


def _first_rows(ctx: EpochContext, node: TopN, first: StateTable) -> DataFrame | None:
    """The first rows as of the last epoch; ``None`` where there was none."""
    return None if ctx.is_backfill else ctx.frames.share(_stored(first, node), summed=True)


def _stored(table: StateTable, node: TopN) -> DataFrame:
    columns = columns_of(node.column_names)
    return table.storage.runs(node.column_names).selectExpr(*columns, f"{STATE_WEIGHT} AS {WEIGHT}")


def _has_more(ctx: EpochContext, prefix: DataFrame, wanted: int) -> bool:
    """Whether the input may have rows after a prefix; one that has not even the rows asked for is all of it."""
    total = _total_weight(ctx, prefix)
    return total is None or total >= wanted


def _total_weight(ctx: EpochContext, shared: DataFrame) -> int | None:
    rows = ctx.frames.rows_of(shared)
    return None if rows is None else pc.sum(rows[WEIGHT]).as_py() or 0


def _touching(ctx: EpochContext, node: TopN, prefix: DataFrame, changed: DataFrame, wanted: int) -> DataFrame:
    """The changed rows that sort no later than the last row of the prefix; all of them where the prefix is the input."""
    if not _has_more(ctx, prefix, wanted):
        return changed
    names = node.column_names
    backwards = by_order_then_all(node.order, node.schema, backwards=True)
    renamed = [F.col(column).alias(f"{_LAST}{n}") for n, column in enumerate(columns_of(names))]
    last = prefix.orderBy(*backwards).limit(1).select(*renamed)
    condition = not_after(node.order, node.schema, [f"{_LAST}{n}" for n in range(len(names))])
    return changed.join(last.hint("broadcast"), F.expr(condition), "inner").select(*columns_of(names), WEIGHT)


def _prefix(ctx: EpochContext, node: TopN, rows: DataFrame, wanted: int) -> DataFrame:
    """The first of some consolidated rows, each with all of its weight: those asked for, and the spare ones."""
    held = ctx.frames.rows_of(rows)
    if held is not None and held.num_rows <= wanted + ctx.spare_rows:
        return rows
    ordered = rows.orderBy(*by_order_then_all(node.order, node.schema))
    return ctx.frames.share(ordered.limit(wanted + ctx.spare_rows))


def _picked(node: TopN, prefix: DataFrame, weight: int) -> DataFrame:
    """The rows that the query asks for, out of a prefix, each copy apart and with a weight."""
    assert node.limit is not None
    enough = f"least({WEIGHT}, {node.limit + node.offset}L) AS {WEIGHT}"
    copies = repeat_by_weight(prefix.selectExpr(*columns_of(node.column_names), enough), WEIGHT)
    return top_n_input.picked(node, copies).withColumn(WEIGHT, F.lit(weight).cast("bigint"))


def _weights_checked(ctx: EpochContext, node: TopN, rows: DataFrame) -> DataFrame:
    problem = text_literal(contradiction(ctx, ctx.tables[node][0]))
    checked = f"IF({WEIGHT} < 0, CAST(raise_error({problem}) AS bigint), {WEIGHT}) AS {WEIGHT}"
    return rows.selectExpr(*columns_of(node.column_names), checked)
