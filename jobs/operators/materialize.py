"""Materialize: the consolidated change set of the view, written to the view's own state table.

It requires nothing of its input. It guarantees that equal rows are summed and, where the view has a stream key, that each
key has at most one −1 row and one +1 row. A change set that breaks this raises, before anything is written; what cannot
(:mod:`.jobs.plan.consolidated`) is neither summed nor checked, which takes two groupings; pairs that may be equal are
compared. The table's runs are the view's change log: publishing and views over this view read them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext, OperatorResult
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.consolidated import has_pairs
from relstate_dagster.jobs.plan.nodes import Materialize
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.row_sums import consolidate, same_value
from relstate_dagster.state_lib.sql_text import quoted, text_literal

_OLD: Final = "_old_row"
_NEW: Final = "_new_row"


def change(ctx: EpochContext, node: Materialize, child: RowSet | None) -> OperatorResult:
    """Write the view's change set and return it."""
    if child is None:
        return OperatorResult(None)
    (table,) = ctx.tables[node]
    if ctx.is_netted(node.child) or (ctx.state_is_new(node) and has_pairs(node.child)):
        changes = child
    elif has_pairs(node.child):
        changes = ctx.row_sets.of(_compared(ctx, node, child.frame))
    else:
        changes = ctx.row_sets.of(consolidated(node, child.frame))
    table.write(changes.frame, carrying=ctx.fused_columns.columns)
    return OperatorResult(changes)


def _compared(ctx: EpochContext, node: Materialize, child: DataFrame) -> DataFrame:
    """The pairs of a key's old and new row that differ."""
    row = f"struct({', '.join(columns_of(node.column_names))})"
    fused_columns = list(ctx.fused_columns.columns)
    picked = [F.expr(f"first(IF({WEIGHT} {sign} 0, {row}, NULL), true) AS {name}") for sign, name in (("<", _OLD), (">", _NEW))]
    picked += [F.expr(f"first({fused_column}, true) AS {fused_column}") for fused_column in fused_columns]
    by_key = child.groupBy(*columns_of(node.stream_key or ())).agg(*picked)

    same = same_value(_OLD, _NEW, f"struct<{', '.join(f'{quoted(f.name)}: {f.data_type}' for f in node.schema)}>")

    def version(name: str, weight: int, carries: str) -> str:
        values = [f"{name}.{column} AS {column}" for column in columns_of(node.column_names)]
        values.append(f"IF({name} IS NOT NULL AND NOT ({same}), {weight}L, 0L) AS {WEIGHT}")
        values += [f"IF({carries}, {fused_column}, NULL) AS {fused_column}" for fused_column in fused_columns]
        return f"struct({', '.join(values)})"

    changes = by_key.selectExpr(f"inline(array({version(_OLD, -1, 'false')}, {version(_NEW, 1, 'true')}))")
    return changes.where(ctx.fused_columns.kept)


def consolidated(node: Materialize, child: DataFrame) -> DataFrame:
    """Change set with equal rows summed and its keys checked.

    Each key has at most one −1 and one +1 row.
    """
    if node.stream_key is None:
        return consolidate(child, node.schema)
    if node.stream_key:
        # Spread by key, both groupings (by row, then by key) find their rows together: one shuffle and not two.
        child = child.repartition(*columns_of(node.stream_key))
    return _checked(node, consolidate(child, node.schema))


def _checked(node: Materialize, changes: DataFrame) -> DataFrame:
    """Change set with one retraction and one insertion at most a key, checked by Spark."""
    key = columns_of(node.stream_key or ())
    fields = ", ".join([*columns_of(node.column_names), WEIGHT])
    per_key = changes.groupBy(*key).agg(F.expr(f"collect_list(struct({fields})) AS _rows"))
    # A view of one row (no key columns) has its one key even where nothing changed.
    fits = (
        f"size(_rows) = 0 OR (size(_rows) <= 2 AND array_max(_rows.{WEIGHT}) <= 1 AND array_min(_rows.{WEIGHT}) >= -1 "
        f"AND size(array_distinct(_rows.{WEIGHT})) = size(_rows))"
    )
    broken = "the change set of the view has more than one row "
    if key:
        named = f"for a value of its stream key ({', '.join(node.stream_key or ())}): "
        cause = ". A source declared with a PRIMARY KEY probably has duplicates of it"
        message = f"concat({text_literal(broken + named)}, to_json(struct({', '.join(key)})), {text_literal(cause)})"
    else:
        message = text_literal(f"{broken}, and its query has one; this is a bug of relstate-dagster, please report it")
    # A filter, because its result has the type of the other branch without anyone having to write that type.
    problem = f"filter(_rows, row -> CAST(raise_error({message}) AS boolean))"
    return per_key.selectExpr(f"inline(IF({fits}, _rows, {problem}))")
