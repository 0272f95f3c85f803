"""Materialize: the consolidated change set of the view, written to the view's own state table.

Requires of its input nothing; guarantees of its output that equal rows are summed and, where the view has a stream key,
that each key has at most one −1 row and one +1 row. A change set that breaks this raises, before anything is written;
what cannot (:mod:`jobs.planner.consolidated`) is neither summed nor checked, which takes two groupings.
The table's runs are the view's change log: publishing and views over this view read them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.operators.context import EpochContext, columns_of, consolidate
from jobs.planner.consolidated import is_consolidated
from jobs.planner.nodes import Materialize
from state_lib.constants import WEIGHT
from state_lib.literals import text_literal


def change(ctx: EpochContext, node: Materialize, child: DataFrame | None) -> DataFrame | None:
    """Write the view's change set and return it."""
    if child is None:
        return None
    (table,) = ctx.tables[node]
    changes = child if is_consolidated(node.child) else _consolidated(ctx, node, child)
    table.write(changes)
    return changes


def _consolidated(ctx: EpochContext, node: Materialize, child: DataFrame) -> DataFrame:
    if node.stream_key is None:
        return consolidate(child, node.column_names)
    if node.stream_key:
        # Spread by key, both groupings (by row, then by key) find their rows together: one shuffle and not two.
        child = child.repartition(*columns_of(node.stream_key))
    return _checked(ctx, node, consolidate(child, node.column_names))


def _checked(ctx: EpochContext, node: Materialize, changes: DataFrame) -> DataFrame:
    """One retraction and one insertion at most for each key; checked in the same pass, by Spark."""
    key = columns_of(node.stream_key or ())
    fields = ", ".join([*columns_of(node.column_names), WEIGHT])
    per_key = changes.groupBy(*key).agg(F.expr(f"collect_list(struct({fields})) AS _rows"))
    # A view of one row (no key columns) has its one key even where nothing changed.
    fits = (
        f"size(_rows) = 0 OR (size(_rows) <= 2 AND array_max(_rows.{WEIGHT}) <= 1 AND array_min(_rows.{WEIGHT}) >= -1 "
        f"AND size(array_distinct(_rows.{WEIGHT})) = size(_rows))"
    )
    broken = text_literal(
        f"epoch {ctx.epoch}: the change set of the view breaks its stream key ({', '.join(node.stream_key or ())}): "
    )
    cause = text_literal(" has more than one row. A source declared with a PRIMARY KEY probably has duplicates of it")
    values = f"to_json(struct({', '.join(key)}))" if key else "'{}'"
    # A filter, because its result has the type of the other branch without anyone having to write that type.
    problem = f"filter(_rows, row -> CAST(raise_error(concat({broken}, {values}, {cause})) AS boolean))"
    return per_key.selectExpr(f"inline(IF({fits}, _rows, {problem}))")
