"""Expressions that raise only for rows that no epoch has.

Most operators are linear: they evaluate an expression on each row of a change set, whatever its weight. Two kinds of rows the
query itself does not evaluate it on:

* Rows that cancel. A new row meets the old value of a scalar subquery with weight 1 and −1; the pair is in no epoch.
* Old rows whose values no one has asked for. Over no bids, ``4 DIV count(*)`` divides by zero, but no bid was compared with it,
  so that epoch was right to give no rows. With the first bids that old value is retracted, and evaluated for the first time.

So if an expression raises, an epoch is computed once more, with equal rows summed before expressions are evaluated. Of what is
left, a row of positive weight is there now: its error is the query's. A row of negative weight was there in the last epoch.
If the expression raises on it, it was not evaluated then, or that epoch would have failed. So the row left nothing in state
or in the view, and it is left out. (Expressions are deterministic, so what was computed of a row then can be computed now.)

A value of a global aggregate may also be one that cannot be computed now, and is asked for by no row: it is joined with none.
It is left out then as well, and the join makes sure that its other side has no rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from relstate_dagster.jobs.operators.context import EpochContext, Pass
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Arrange, Expand, Filter, Join, PlanNode, Project, Scan, UnionAll, walk
from relstate_dagster.jobs.planner.one_row import has_one_row, is_of_subquery
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.row_sums import consolidate

#: Spark would evaluate what two expressions share before either of them, and not within what catches its error.
_SHARED_PARTS: Final = "spark.sql.subexpressionElimination.enabled"


class AskedForError(Exception):
    """A value that cannot be computed is asked for by rows that are there now."""


def computable(ctx: EpochContext, node: PlanNode, rows: RowSet) -> RowSet:
    """The rows whose expressions a node evaluates.

    Fewer than it is given only if the epoch is computed once more for an error.

    Parameters
    ----------
    node : of a join, the rows are the pairs that its equalities make.
    """
    if not ctx.leaves_out_old_errors or not isinstance(node, Project | Filter | Expand | Join):
        return rows
    columns = node.schema if isinstance(node, Join) else node.child.schema
    expressions = [sql for sql in _expressions(node) if sql not in columns_of([c.name for c in columns])]
    if not expressions:
        return rows
    # An addition to a date, of what is no plain number, gives NULL for any error within. It adds the length of all values, so
    # that none of them is optimized away; a condition in it would be taken out of it.
    values = ", ".join(f"CAST(array({sql}) AS STRING)" for sql in expressions)
    has_values = f"try_add(DATE'1970-01-01', length(concat_ws('', {values}))) > DATE'1970-01-01'"
    is_old = node in ctx.asked_for_by_joins or ctx.runs_for is Pass.ROWS_BEFORE
    kept = has_values if is_old else f"{WEIGHT} > 0 OR {has_values}"
    # Shared, or Spark would evaluate the condition of a filter above on the rows as they were before they were summed.
    return ctx.row_sets.shared(consolidate(rows.frame, columns).where(kept))


def _expressions(node: Project | Filter | Expand | Join) -> Sequence[str]:
    match node:
        case Project():
            return [e.sql for e in node.expressions]
        case Expand():
            return [sql for projection in node.projections for sql in projection]
        case Filter():
            return [node.condition]
        case Join():
            return [] if node.residual is None else [node.residual]


def asked_for_by_joins(root: PlanNode) -> frozenset[PlanNode]:
    """The projections of global aggregates that nothing reads but inner joins, in place."""
    readers: dict[PlanNode, list[PlanNode]] = {}
    for node in walk(root):
        for child in node.children:
            readers.setdefault(child, []).append(node)

    def is_asked(node: PlanNode) -> bool:
        is_value = isinstance(node, Project) and has_one_row(node)
        return is_value and all(_asks(reader, node) or is_asked(reader) for reader in readers.get(node, [root]))

    return frozenset(node for node in readers if is_asked(node))


def _asks(reader: PlanNode, value: PlanNode) -> bool:
    if not isinstance(reader, Join) or reader.join_type != "inner":
        return False
    return all(in_place for side, in_place in _sides(reader) if side == value)


def computed_by_spark(root: PlanNode) -> list[PlanNode]:
    """The values that Spark computes though no row asks for them.

    They are of scalar subqueries that are read together with the rows of relations. Above a shuffle, or where a join is
    written, Spark's adaptive execution leaves out what meets no rows.
    """
    joins = [node for node in walk(root) if isinstance(node, Join) and is_of_subquery(node.right)]
    return [join.right for join in joins if _is_read_in_place(join.left)]


def _is_read_in_place(node: PlanNode) -> bool:
    if isinstance(node, Join) and is_of_subquery(node.right):
        return _is_read_in_place(node.left)
    return isinstance(node, Scan | Filter | Project | UnionAll | Arrange) and all(map(_is_read_in_place, node.children))


def _sides(join: Join) -> tuple[tuple[PlanNode, bool], ...]:
    return (join.left, join.left_in_place), (join.right, join.right_in_place)


@contextmanager
def errors_caught(spark: SparkSession) -> Iterator[None]:
    """Let a session evaluate expressions in the places where they are written."""
    before = spark.conf.get(_SHARED_PARTS, None)
    spark.conf.set(_SHARED_PARTS, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_SHARED_PARTS)
        else:
            spark.conf.set(_SHARED_PARTS, before)
