"""Rows whose window results may have changed, and the rows of their frames.

All rows of a partition, old and new ones, stand in one total order. A row that both versions have keeps its result if no
changed row is within reach. Distances are counted in each version: a deleted row lies between others in the old one only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.materialized_input import NEW_COPIES, OLD_COPIES
from relstate_dagster.jobs.operators.ordering import by_order, by_order_then_all
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Reach, Window

#: Whether the results of a row may have changed.
AFFECTED: Final = "_is_affected"
_VERSIONS: Final = (OLD_COPIES, NEW_COPIES)


def near_changes(rows: DataFrame, node: Window, reach: Reach) -> DataFrame:
    """Rows that the results of affected rows depend on, with a flag for these.

    Parameters
    ----------
    rows : of affected partitions, with copies in the old and in the new version.
    reach : not all rows, in both directions.
    """
    partition = columns_of(node.partition)
    names = [*rows.columns, AFFECTED]
    spread = rows.repartition(*partition) if partition else rows.coalesce(1)
    is_changed = F.col(OLD_COPIES) != F.col(NEW_COPIES)
    forwards = Over.partitionBy(*partition).orderBy(*by_order_then_all(node.order, node.child.schema))
    so_far = forwards.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    counted = spread.select("*", *(F.sum(copies).over(so_far).alias(_until(copies)) for copies in _VERSIONS))
    last = [F.max(F.when(is_changed, F.col(_until(copies)))).over(so_far).alias(_last(copies)) for copies in _VERSIONS]
    near = [is_changed]
    if reach.before is None or reach.after is None:
        flags = list(_unbounded(node, reach, is_changed, partition))
        found = counted.select("*", *flags, *(last if reach.after else []))
        near += [F.coalesce(F.col(name), F.lit(False)) for name in found.columns if name.startswith("_is_any_")]
    else:
        found = counted.select("*", *last)
    if reach.before is not None and (reach.before or reach.after):
        backwards = Over.partitionBy(*partition).orderBy(*by_order_then_all(node.order, node.child.schema, backwards=True))
        from_here = backwards.rowsBetween(Over.unboundedPreceding, Over.currentRow)
        following = [F.min(F.when(is_changed, _first(copies))).over(from_here).alias(_next(copies)) for copies in _VERSIONS]
        found = found.select("*", *following)
    if reach.after:
        near += [_after(copies) <= reach.after for copies in _VERSIONS]
    if reach.before:
        near += [_before(copies) <= reach.before for copies in _VERSIONS]
    is_affected = F.coalesce(reduce(or_, near), F.lit(False))
    if reach.before is None or reach.after is None:
        return found.withColumn(AFFECTED, is_affected).select(*columns_of(names))
    most = reach.before + reach.after
    needed = [is_changed]
    if most:
        needed += [distance(copies) <= most for copies in _VERSIONS for distance in (_after, _before)]
    kept = found.where(F.coalesce(reduce(or_, needed), F.lit(False)))
    return kept.withColumn(AFFECTED, is_affected).select(*columns_of(names))


def _unbounded(node: Window, reach: Reach, is_changed: Column, partition: list[str]) -> Iterator[Column]:
    """Whether any row before, or after, has changed.

    With ``peers`` also one that is equal in the order.
    """
    for backwards, bound in ((False, reach.after), (True, reach.before)):
        if bound is None:
            total = by_order_then_all(node.order, node.child.schema, backwards=backwards)
            over = Over.partitionBy(*partition).orderBy(*(by_order(node.order, backwards=backwards) if reach.peers else total))
            between = over.rangeBetween if reach.peers else over.rowsBetween
            name = "_is_any_after" if backwards else "_is_any_before"
            yield F.max(is_changed).over(between(Over.unboundedPreceding, Over.currentRow)).alias(name)


def _until(copies: str) -> str:
    return f"{copies}_until"


def _last(copies: str) -> str:
    return f"{copies}_last"


def _next(copies: str) -> str:
    return f"{copies}_next"


def _first(copies: str) -> Column:
    """The place of the first copy of a row in a version."""
    return F.col(_until(copies)) - F.col(copies) + 1


def _after(copies: str) -> Column:
    """Rows from the last changed row to this one; NULL without one."""
    return _first(copies) - F.col(_last(copies))


def _before(copies: str) -> Column:
    """Rows from this row to the next changed one; NULL without one."""
    return F.col(_next(copies)) - F.col(_until(copies))
