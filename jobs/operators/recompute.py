"""Change set of a view: all of its rows less those that it has.

Cost: all rows of what the view reads, and of the view itself. That is less than to follow a change that meets most of them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators import materialize
from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.consolidated import has_pairs, is_consolidated
from relstate_dagster.jobs.plan.nodes import Materialize
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.row_sums import consolidate


def change(ctx: EpochContext, root: Materialize, now: DataFrame | None) -> RowSet:
    """Write the view's change set and return it.

    Parameters
    ----------
    now : all rows of the view as of this epoch; with weights, or one for each copy.
    """
    (table,) = ctx.tables[root]
    columns = columns_of(root.column_names)
    # The view's log need not be merged first: the sum does that.
    changes = table.storage.runs(root.column_names).selectExpr(*columns, f"-{STATE_WEIGHT} AS {WEIGHT}")
    if now is not None:
        weight = F.col(WEIGHT) if WEIGHT in now.columns else F.lit(1).cast("bigint").alias(WEIGHT)
        changes = now.select(*columns, weight).union(changes)
    has_one_row_a_key = is_consolidated(root.child) or has_pairs(root.child)
    changes = consolidate(changes, root.schema) if has_one_row_a_key else materialize.consolidated(root, changes)
    table.write(changes)
    return ctx.row_sets.of(changes)
