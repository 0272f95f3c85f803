"""Top-n without a limit, or with a very large one: the rows after an offset, old against new, out of the whole input.

State: materialized input. Cost: the input.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.aggregate_group import Affected
from jobs.operators.context import EpochContext, consolidate
from jobs.operators.materialized_input import old_and_new
from jobs.operators.ordering import by_order_then_all
from jobs.planner.nodes import TopN
from state_lib.constants import WEIGHT

_VERSION = "_version"


def change(ctx: EpochContext, node: TopN, child: DataFrame | None) -> DataFrame | None:
    """The rows that entered or left the first n."""
    if child is None:
        return None
    (table,) = ctx.tables[node]
    changed = ctx.share(consolidate(child, node.child.column_names))
    if ctx.is_empty(changed):
        return None
    table.write(changed)
    versions = ctx.share(old_and_new(ctx, table, (), changed, Affected(changed, None, None), _VERSION))
    outputs = []
    for version, weight in (("old", -1), ("new", 1)):
        if version == "old" and ctx.is_backfill:
            continue
        rows = versions.where(F.col(_VERSION) == version).drop(_VERSION)
        ordered = rows.orderBy(*by_order_then_all(node.order, node.child.column_names))
        if node.offset:
            ordered = ordered.offset(node.offset)
        if node.limit is not None:
            ordered = ordered.limit(max(node.limit, 0))
        outputs.append(ordered.withColumn(WEIGHT, F.lit(weight).cast("bigint")))
    both = outputs[0] if len(outputs) == 1 else outputs[0].union(outputs[1])
    return consolidate(both, node.column_names)
