"""Materialized input: rows of affected partitions, before and after a change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.aggregate_group import Affected
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of, repeat_by_weight
from relstate_dagster.jobs.plan.nodes import PlanNode
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.merge import sum_equal
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.state_table import StateTable

#: Copies of a row, before and after the change.
OLD_COPIES: Final = "_old"
NEW_COPIES: Final = "_new"
_COPIES: Final = (("old", OLD_COPIES), ("new", NEW_COPIES))


def received(
    ctx: EpochContext, table: StateTable, node: PlanNode, change_set: RowSet, wanted_by: Sequence[str] = ()
) -> RowSet | None:
    """An input's consolidated change set, shared and stored; ``None`` if empty.

    Parameters
    ----------
    node : the input.
    wanted_by : as of :meth:`.jobs.operators.row_set.RowSet.shared`.
    """
    changed = change_set.shared(wanted_by, summed=not ctx.is_netted(node))
    if changed.is_empty:
        return None
    table.write(changed.frame)
    return changed


def contradiction(table: StateTable) -> str:
    """Message for an input row with a negative count."""
    return (
        f"an input row is retracted more often than it is there (table_id {table.desc.table_id}); "
        "the input contradicts the state, rebuild with --full-refresh"
    )


def new_minus_old(
    ctx: EpochContext, node: PlanNode, versions: DataFrame, version: str, compute: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """A computation over new rows less the same over old rows.

    Of :func:`old_and_new`.

    Returns
    -------
    The computed columns and ``_weight``, not consolidated.
    """
    outputs = [
        compute(versions.where(F.col(version) == name).drop(version)).withColumn(WEIGHT, F.lit(weight).cast("bigint"))
        for name, weight in (("old", -1), ("new", 1))
        if name == "new" or not ctx.state_is_new(node)
    ]
    return reduce(DataFrame.union, outputs)


def old_and_new(
    ctx: EpochContext,
    node: PlanNode,
    table: StateTable,
    partition: Sequence[str],
    changed: RowSet,
    affected: Affected,
    version: str,
) -> DataFrame:
    """Rows of affected partitions, as of the last epoch and with the change.

    Parameters are those of :func:`with_copies` and :func:`both_versions`.
    """
    return both_versions(with_copies(ctx, node, table, partition, changed, affected), version)


def with_copies(
    ctx: EpochContext, node: PlanNode, table: StateTable, partition: Sequence[str], changed: RowSet, affected: Affected
) -> DataFrame:
    """Rows of affected partitions with the number of their copies, before and after the change.

    Parameters
    ----------
    node : whose input it is.
    table : materialized input, keyed by the partition columns first.
    partition : the partition columns; none means that all rows are one partition.
    changed : the consolidated change set of the input.
    affected : the distinct partition keys to read.
    """
    names = [c.name for c in table.desc.schema.columns]
    columns = columns_of(names)
    rows = select(changed.frame, [*columns, f"0L AS {OLD_COPIES}", f"{WEIGHT} AS _delta"])
    if not ctx.state_is_new(node):
        runs = affected.stored(table, partition, names)
        stored = select(runs, [*columns, f"{STATE_WEIGHT} AS {OLD_COPIES}", "0L AS _delta"])
        sums = {name: F.sum(name) for name in (OLD_COPIES, "_delta")}
        # By the partition from the start: neither the sums nor what is computed of a partition shuffle again.
        both = stored.union(rows)
        spread = both.repartition(*columns_of(partition)) if partition else both
        rows = sum_equal(spread, table.desc.schema, names, sums)
    now = f"{OLD_COPIES} + _delta"
    problem = text_literal(contradiction(table))
    checked = f"CASE WHEN {now} < 0 THEN CAST(raise_error({problem}) AS BIGINT) ELSE {now} END AS {NEW_COPIES}"
    return select(rows, [*columns, OLD_COPIES, checked])


def both_versions(rows: DataFrame, version: str) -> DataFrame:
    """Rows of :func:`with_copies`, one for each copy in each version.

    Parameters
    ----------
    version : name of the column that says ``old`` or ``new``.
    """
    others = columns_of([name for name in rows.columns if name not in {OLD_COPIES, NEW_COPIES}])
    both = ", ".join(f"struct('{name}' AS version, {copies} AS copies)" for name, copies in _COPIES)
    exploded = select(rows, [*others, f"explode(array({both})) AS _both"])
    flat = select(exploded, [*others, f"_both.version AS {quoted(version)}", "_both.copies AS _copies"])
    return repeat_by_weight(flat, "_copies")
