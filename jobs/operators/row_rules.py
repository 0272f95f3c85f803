"""Rules of plan nodes: the rows of a node from the rows of its inputs.

Operators apply them to changes, lookups in place to the rows of some keys, closed groups to the rows of a range, and provenance
to all rows. A rule says which rows and columns there are, and passes other columns on.

* Of linear nodes the rows follow from each row of their inputs, so the rule is one for all of these.
* Windows and limits need all rows of a partition or of the input: operators use the rule for old and for new rows.
* Joins share which pairs match, and no more: changes multiply weights, and provenance keeps the identity of both rows. It also
  keeps from which input of a union a row is.
* Aggregates have one for all rows alone, by Spark's own functions: operators have folded rows into state.
* Scans, constants and queries that run in full have no inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.ordering import by_order_then_all
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.aggregates.materialized import depends_on_order
from relstate_dagster.jobs.plan.nodes import (
    Aggregate,
    Arrange,
    Expand,
    Filter,
    Generate,
    Join,
    Materialize,
    PlanNode,
    Project,
    Temporal,
    TemporalFilter,
    TemporalProject,
    TopN,
    UnionAll,
    Window,
)
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.lazy_frame import select
from relstate_dagster.state_lib.sql_text import quoted


def rows_by_rule(
    node: PlanNode, inputs: Sequence[DataFrame], carried: Sequence[str], *, instant: str | None = None
) -> DataFrame:
    """Rows of a node.

    Parameters
    ----------
    inputs : rows of its inputs, with their columns and those that are carried.
    carried : columns that a row keeps, as a weight. No rule reads them.
    instant : SQL text of ``now()``; only temporal nodes need it.

    Raises
    ------
    PlanError : there is no rule for the node.
    """
    if isinstance(node, Temporal):
        assert instant is not None
        return _at(node, inputs[0], carried, instant)
    rule = _RULES.get(type(node))
    if rule is None:
        raise PlanError(f"rows of {type(node).__name__} do not follow from those of its inputs by a rule")
    return rule(node, inputs, carried)


def joined(node: Join, one: DataFrame, other: DataFrame, how: str = "inner") -> DataFrame:
    """Join a frame of each side on equalities and residual condition.

    ``how`` as Spark calls it.
    """
    parts = [key.sql for key in node.keys]
    if node.residual is not None:
        parts.append(node.residual)
    if not parts and how == "inner":
        return one.crossJoin(other)
    return one.join(other, F.expr(" AND ".join(parts) or "true"), how)


def one_sided(node: Join, left: DataFrame, right: DataFrame, carried: Sequence[str]) -> DataFrame:
    """Rows of the left side that match or do not, or all with a flag."""
    with_match = joined(node, left, right, "left_semi")
    if node.join_type == "left semi":
        return with_match
    without = joined(node, left, right, "left_anti")
    if node.join_type == "left anti":
        return without
    exists = node.schema[-1].name
    both = with_match.withColumn(exists, F.lit(True)).union(without.withColumn(exists, F.lit(False)))
    return both.select(*columns_of(node.column_names), *carried)


def in_order_of_groups(node: Aggregate, rows: DataFrame) -> DataFrame:
    """Input rows of an aggregate, each group's together and in one order.

    Sums of floating-point numbers, lists and sketches depend on it, to the last bit.
    """
    spread = rows.repartition(*columns_of(node.group)) if node.group else rows.coalesce(1)
    return spread.sortWithinPartitions(*columns_of(node.group), *by_order_then_all((), node.child.schema))


def aggregated(node: Aggregate, rows: DataFrame) -> DataFrame:
    """Groups of all rows, as an epoch that follows changes has them."""
    group = columns_of(node.group)
    if any(depends_on_order(call) for call in node.calls):
        rows = in_order_of_groups(node, rows)
    calls = [F.expr(call.sql).alias(call.output.name) for call in node.calls]
    if calls:
        return rows.groupBy(*group).agg(*calls)
    return rows.select(*group).distinct() if group else rows.groupBy().agg(F.count(F.lit(1))).select()


def _at(node: Temporal, rows: DataFrame, carried: Sequence[str], instant: str) -> DataFrame:
    if isinstance(node, TemporalFilter):
        return rows.where(node.condition_at(instant))
    assert isinstance(node, TemporalProject)
    return rows.selectExpr(*columns_of(node.child.column_names), *node.flags_at(instant), *carried)


def _filtered(node: Filter, inputs: Sequence[DataFrame], _carried: Sequence[str]) -> DataFrame:
    return inputs[0].where(node.condition)


def _projected(node: Project, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    return select(inputs[0], [*(f"{e.sql} AS {quoted(e.output.name)}" for e in node.expressions), *carried])


def _stacked(_node: UnionAll, inputs: Sequence[DataFrame], _carried: Sequence[str]) -> DataFrame:
    return reduce(DataFrame.union, inputs)


def _passed_on(_node: PlanNode, inputs: Sequence[DataFrame], _carried: Sequence[str]) -> DataFrame:
    return inputs[0]


def _expanded(node: Expand, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    structs = []
    for projection in node.projections:
        fields = ", ".join(
            f"CAST({sql} AS {f.data_type}) AS {quoted(f.name)}" for sql, f in zip(projection, node.columns, strict=True)
        )
        structs.append(f"struct({fields})")
    return inputs[0].select(F.expr(f"inline(array({', '.join(structs)}))"), *carried)


def _generated(node: Generate, inputs: Sequence[DataFrame], carried: Sequence[str]) -> DataFrame:
    return inputs[0].select(*columns_of(node.child.column_names), *carried, _generator(node))


def _generator(node: Generate) -> Column:
    """The columns that the generator gives for a row, a row each."""
    name, bracket, rest = node.generator.partition("(")
    text = node.generator
    if node.outer and not name.endswith("_outer"):
        text = f"{name}_outer{bracket}{rest}"
    return F.expr(text).alias(*(f.name for f in node.generated))


def _with_windows(node: Window, inputs: Sequence[DataFrame], _carried: Sequence[str]) -> DataFrame:
    """Window results, where all columns break ties."""
    (rows,), partition = inputs, columns_of(node.partition)
    spread = rows.repartition(*partition) if partition else rows.coalesce(1)
    ordered = spread.sortWithinPartitions(*partition, *by_order_then_all(node.order, node.child.schema))
    return ordered.select("*", *(F.expr(e.sql).alias(e.output.name) for e in node.expressions))


def _first(node: TopN, inputs: Sequence[DataFrame], _carried: Sequence[str]) -> DataFrame:
    """The first rows after the offset, each copy apart, where all columns break ties."""
    ordered = inputs[0].orderBy(*by_order_then_all(node.order, node.schema))
    if node.offset:
        ordered = ordered.offset(node.offset)
    return ordered if node.limit is None else ordered.limit(max(node.limit, 0))


_RULES: Final[dict[type[PlanNode], Callable[[Any, Sequence[DataFrame], Sequence[str]], DataFrame]]] = {
    Filter: _filtered,
    Project: _projected,
    UnionAll: _stacked,
    Arrange: _passed_on,
    Expand: _expanded,
    Generate: _generated,
    Materialize: _passed_on,
    Window: _with_windows,
    TopN: _first,
}
