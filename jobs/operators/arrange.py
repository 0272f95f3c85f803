"""Arrange: the rows of a filtered source, kept by their key where they are few out of many.

A join looks for rows of such a side by its key: for some of the parts of one brand. In place that is to read the keys and the
filtered columns of all parts, since random keys are on nearly every page. The few rows in state (an arrangement, as
differential dataflow calls it) are read whole instead, and the join follows the one before it without a step of its own.

State: the rows, under their key; or none at all, where a backfill finds that they are many, or few out of not so many. Then
they are looked up in place in every epoch.

Cost: |Δ| of the filtered rows, which are written once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from jobs.operators.context import EpochContext, columns_of
from jobs.planner.nodes import Arrange, Scan, walk
from state_lib.collected import collected, nullable_within
from state_lib.constants import STATE_WEIGHT, WEIGHT
from state_lib.small_commits import is_plain
from state_lib.state_table import StateTable
from state_lib.within import RESTRICTED_ROWS

#: Rows are kept where a source has so many that a lookup does not read them whole,
_MANY_ROWS = RESTRICTED_ROWS
#: a filter leaves at most one in so many of them,
_ONE_IN: Final = 4
#: and no more than this, so that they are read whole also when more of them have come.
_MOST_KEPT: Final = RESTRICTED_ROWS * 4 // 5


def change(ctx: EpochContext, node: Arrange, rows: DataFrame | None) -> DataFrame | None:
    """The change set of the input, written to the state if that has its rows."""
    if rows is None:
        return None
    table = _table(ctx, node)
    if ctx.is_backfill:
        kept = _few(ctx, node, rows)
        if kept is None:
            return rows
    elif _is_kept(table):
        kept = ctx.share(rows)
        if ctx.is_empty(kept):
            return None
    else:
        return rows
    table.write(kept)
    return kept


def rows_now(ctx: EpochContext, node: Arrange, wanted_by: DataFrame, on: Sequence[tuple[str, str]]) -> DataFrame | None:
    """The rows as of this epoch, those that a shared change set asks for at least; ``None`` where the state has none.

    Parameters
    ----------
    on : pairs of a key column and the column of ``wanted_by`` it equals, in the order of the key; none means every row.

    Returns
    -------
    The node's columns and ``_weight``, unmerged: rows that this epoch has changed are there with weight −1, too.
    """
    table = _table(ctx, node)
    if not _is_kept(table):
        return None
    runs = table.storage.runs(node.column_names, ctx.within(wanted_by, on))
    columns = columns_of(node.column_names)
    before = runs.selectExpr(*columns, f"{STATE_WEIGHT} AS {WEIGHT}")
    change_set = ctx.changes.get(node)
    return before if change_set is None else before.union(change_set.select(*columns, WEIGHT))


def rows_kept(ctx: EpochContext, node: Arrange) -> int | None:
    """How many rows the state has, of all epochs: 0 where it keeps none, ``None`` where the log does not tell."""
    return _row_count(_table(ctx, node))


def _table(ctx: EpochContext, node: Arrange) -> StateTable:
    (table,) = ctx.tables[node]
    return table


def _is_kept(table: StateTable) -> bool:
    return _row_count(table) != 0


def _row_count(table: StateTable) -> int | None:
    return table.storage.row_count_of([table.desc.table_id])


def _few(ctx: EpochContext, node: Arrange, rows: DataFrame) -> DataFrame | None:
    """The rows, held by the driver; ``None`` where they are not to be kept."""
    counts = [ctx.row_count(scan.relation) for scan in walk(node) if isinstance(scan, Scan)]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or sum(known) < _MANY_ROWS or not all(is_plain(f.dataType) for f in rows.schema.fields):
        return None
    # Counted first: a LIMIT would send as many rows from each task to a single one.
    if rows.count() > min(_MOST_KEPT, sum(known) // _ONE_IN):
        return None
    whole = nullable_within(rows)
    found = collected(whole)
    return None if found is None else ctx.spark.createDataFrame(found, whole.schema)
