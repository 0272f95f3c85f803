"""Window functions: the affected partitions recomputed by Spark, old rows against new rows.

State: materialized input, keyed ``partition key | stream key``. Ties are broken by all columns, in both versions alike:
a function that depends on the order of equal rows then gives the same rows back when its old result is recomputed to
be retracted. Cost: the rows of the affected partitions.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.aggregate_group import Affected
from jobs.operators.context import EpochContext, columns_of, consolidate
from jobs.operators.materialized_input import old_and_new
from jobs.operators.ordering import by_order_then_all
from jobs.planner.nodes import Window
from state_lib.constants import WEIGHT

_VERSION = "_version"


def change(ctx: EpochContext, node: Window, child: DataFrame | None) -> DataFrame | None:
    """The rows of the affected partitions whose columns or window results changed."""
    if child is None:
        return None
    (table,) = ctx.tables[node]
    changed = ctx.share(consolidate(child, node.child.column_names))
    if ctx.is_empty(changed):
        return None
    table.write(changed)
    first = node.partition[:1]
    within = ctx.within(changed, list(zip(first, first, strict=True)), null_safe=True)
    affected = Affected(changed.select(*columns_of(node.partition)).distinct(), within, ctx.hint(changed))
    versions = ctx.share(old_and_new(ctx, table, node.partition, changed, affected, _VERSION))
    outputs = []
    for version, weight in (("old", -1), ("new", 1)):
        if version == "old" and ctx.is_backfill:
            continue
        rows = versions.where(F.col(_VERSION) == version).drop(_VERSION)
        partition = columns_of(node.partition)
        spread = rows.repartition(*partition) if partition else rows.coalesce(1)
        ordered = spread.sortWithinPartitions(*partition, *by_order_then_all(node.order, node.child.column_names))
        results = [F.expr(e.sql).alias(e.output.name) for e in node.expressions]
        outputs.append(ordered.select("*", *results, F.lit(weight).cast("bigint").alias(WEIGHT)))
    both = outputs[0] if len(outputs) == 1 else outputs[0].union(outputs[1])
    return consolidate(both, node.column_names)
