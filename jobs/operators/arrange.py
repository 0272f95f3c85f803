"""Arrange: rows of a filtered source, kept by key where they are few.

A join looks for rows of such a side: for some of the parts of one brand, or the late lines of some orders. In place that is to
read the keys and the filtered columns of all parts, since random keys are on nearly every page. The few rows in state (an
arrangement, as differential dataflow calls it) are read whole instead, and the join follows the one before it without a step
of its own.

State: the rows, under their key. There is none as long as lookups find their keys on few pages (the keys of new orders), or
the filter leaves many rows. An epoch whose lookup would read many has them all read once more, and keeps them if a sample
says that they are few. Epochs after it maintain them.

Cost: |Δ| of the filtered rows, which are written once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.relations import Sampled
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Arrange, Scan, walk
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.lake.commit import is_plain
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.state_table import StateTable
from relstate_dagster.state_lib.tuning import tuning


def change(ctx: EpochContext, node: Arrange, rows: RowSet | None) -> OperatorResult:
    """The change set of the input, written to the state if that has its rows."""
    if rows is None or not _is_kept(ctx, node):
        return OperatorResult(rows)
    kept = rows.shared()
    if kept.is_empty:
        return OperatorResult(None)
    _table(ctx, node).write(kept.frame)
    return OperatorResult(kept)


def rows_now(ctx: EpochContext, node: Arrange, wanted_by: RowSet, on: Sequence[tuple[str, str]]) -> DataFrame | None:
    """Rows as of this epoch that a change set asks for, at least.

    ``None`` if the state has none.

    Parameters
    ----------
    on : pairs of a key column and the column of ``wanted_by`` it equals, in the order of the key; none means every row.

    Returns
    -------
    The node's columns and ``_weight``, unmerged: rows that this epoch has changed are there with weight −1, too.
    """
    if not _is_kept(ctx, node):
        return None
    runs = _table(ctx, node).storage.runs(node.column_names, wanted_by.lookup_keys(on))
    columns = columns_of(node.column_names)
    before = runs.selectExpr(*columns, f"{STATE_WEIGHT} AS {WEIGHT}")
    change_set = ctx.changes.get(node)
    return before if change_set is None else before.union(change_set.frame.select(*columns, WEIGHT))


def keep(
    ctx: EpochContext, node: Arrange, rows_read: float | None, rows_of: Callable[[EpochContext], DataFrame]
) -> DataFrame | None:
    """All rows as of this epoch, kept from now on.

    ``None`` if they should not be.

    Parameters
    ----------
    rows_read : about how many rows a lookup reads where they are not kept.
    rows_of : all rows of the input, as a context gives the relations below it.
    """
    if (
        rows_read is None
        or rows_read < tuning().arranged_lookup_rows
        or ctx.state_is_new(node)
        or not ctx.row_sets.shares_by_jobs
    ):
        return None
    return ctx.steps.once(("keep", node), lambda: _kept(ctx, node, rows_of))


def rows_kept(ctx: EpochContext, node: Arrange) -> int | None:
    """Number of stored rows, of all epochs.

    0 if it keeps none, ``None`` if the log does not tell.
    """
    if ctx.state_is_new(node):
        return 0
    table = _table(ctx, node)
    return table.storage.row_count_of([table.desc.table_id])


def _table(ctx: EpochContext, node: Arrange) -> StateTable:
    (table,) = ctx.tables[node]
    return table


def _is_kept(ctx: EpochContext, node: Arrange) -> bool:
    return rows_kept(ctx, node) != 0


def _kept(ctx: EpochContext, node: Arrange, rows_of: Callable[[EpochContext], DataFrame]) -> DataFrame | None:
    if not all(is_plain(parse_type(f.data_type)) for f in node.schema):
        return None
    names = [scan.relation for scan in walk(node) if isinstance(scan, Scan)]
    total = sum(ctx.relations.row_count(name) or 0 for name in names)
    most = min(tuning().arranged_rows, total // tuning().arranged_one_in)
    if not _are_few(ctx, names, rows_of, most / total):
        return None
    found = ctx.row_sets.few(rows_of(ctx), most)
    if found is None:
        return None
    _table(ctx, node).write(found.frame)
    return found.frame


def _are_few(ctx: EpochContext, names: Sequence[str], rows_of: Callable[[EpochContext], DataFrame], most: float) -> bool:
    """Whether the input has few rows, by a sample of the relations below it."""
    samples = {name: ctx.relations.sample(name) for name in names}
    known = {name: found for name, found in samples.items() if found is not None}
    if len(known) < len(samples):
        return False
    left = rows_of(replace(ctx, relations=Sampled(ctx.relations, {name: rows for name, (rows, _) in known.items()}))).count()
    return left <= most * sum(count for _, count in known.values())
