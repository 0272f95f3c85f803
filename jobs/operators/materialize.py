"""Materialize: the consolidated change set of the view, written to the view's own state table.

Requires of its input nothing; guarantees of its output that equal rows are summed and, where the view has a stream key,
that each key has at most one −1 row and one +1 row. A change set that breaks this raises, before anything is written.
The table's runs are the view's change log: publishing and views over this view read them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.context import EpochContext, columns_of, consolidate
from jobs.planner.nodes import Materialize
from state_lib.constants import WEIGHT


def change(ctx: EpochContext, node: Materialize, child: DataFrame | None) -> DataFrame | None:
    """Write the view's change set and return it."""
    if child is None:
        return None
    (table,) = ctx.tables[node]
    if node.stream_key:
        # Spread by key, both groupings (by row, then by key) find their rows together: one shuffle and not two.
        child = child.repartition(*columns_of(node.stream_key))
    changes = consolidate(child, node.column_names)
    if node.stream_key is not None:
        changes = _checked(ctx, node, changes)
    table.write(changes)
    return changes


def _checked(ctx: EpochContext, node: Materialize, changes: DataFrame) -> DataFrame:
    """One retraction and one insertion at most for each key; checked in the same pass, by Spark."""
    key = columns_of(node.stream_key or ())
    rows = F.struct(*columns_of(node.column_names), WEIGHT)
    per_key = changes.groupBy(*key).agg(F.collect_list(rows).alias("_rows"))
    weights = F.transform(F.col("_rows"), lambda row: row.getField(WEIGHT))
    # A view of one row (no key columns) has its one key even where nothing changed.
    fits = (F.size("_rows") == 0) | (
        (F.size("_rows") <= 2)
        & (F.array_max(weights) <= 1)
        & (F.array_min(weights) >= -1)
        & (F.size(F.array_distinct(weights)) == F.size("_rows"))
    )
    problem = F.concat(
        F.lit(f"epoch {ctx.epoch}: the change set of the view breaks its stream key ({', '.join(node.stream_key or ())}): "),
        F.to_json(F.struct(*key)) if key else F.lit("{}"),
        F.lit(" has more than one row. A source declared with a PRIMARY KEY probably has duplicates of it"),
    )
    checked = F.when(fits, F.col("_rows")).otherwise(
        F.raise_error(problem).cast(changes.select(F.array(rows)).schema[0].dataType)
    )
    return per_key.select(F.explode(checked).alias("_row")).select("_row.*")
