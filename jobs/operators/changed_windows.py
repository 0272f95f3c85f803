"""Rows whose window results may have changed, and the rows of their frames.

All rows of a partition, old and new ones, stand in one total order. A row that both versions have keeps its result if no
changed row is within reach. Distances are counted in each version: a deleted row lies between others in the old one only.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.materialized_input import NEW_COPIES, OLD_COPIES
from relstate_dagster.jobs.operators.ordering import by_order, by_order_then_all
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import Reach, Window
from relstate_dagster.state_lib.sql_text import quoted

#: Whether the results of a row may have changed.
AFFECTED: Final = "_is_affected"
_VERSIONS: Final = (OLD_COPIES, NEW_COPIES)


def near_changes(rows: DataFrame, node: Window, reach: Reach) -> DataFrame:
    """Rows that the results of affected rows depend on, with a flag for these.

    A version without affected rows in a partition has no copies there: rows that are appended at its end change no old result.

    Parameters
    ----------
    rows : of affected partitions, with copies in the old and in the new version.
    reach : not all rows, in both directions.
    """
    names = [*rows.columns, AFFECTED]
    partition = columns_of(node.partition)
    # The frames of affected rows lie within this many rows of a change; without bound, all rows are needed.
    frames = None if reach.before is None or reach.after is None else reach.before + reach.after
    found = rows if partition else rows.coalesce(1)
    so_far = _up_to_here(node, by_order_then_all(node.order, node.child.schema))
    found = found.select("*", *(F.sum(copies).over(so_far).alias(_until(copies)) for copies in _VERSIONS))
    if reach.after != 0 or frames:
        last = (F.max(F.when(_is_changed(), F.col(_until(copies)))).over(so_far).alias(_last(copies)) for copies in _VERSIONS)
        found = found.select("*", *last)
    if reach.before != 0 or frames:
        from_here = _up_to_here(node, by_order_then_all(node.order, node.child.schema, backwards=True))
        following = (F.min(F.when(_is_changed(), _first(copies))).over(from_here).alias(_next(copies)) for copies in _VERSIONS)
        found = found.select("*", *following)
    is_affected = _is_within(reach.before, reach.after)
    if reach.peers:
        peers = _up_to_here(node, by_order(node.order, backwards=reach.before is None), with_peers=True)
        is_affected = is_affected | F.max(_is_changed()).over(peers)
    found = found.withColumn(AFFECTED, is_affected)
    kept = found if frames is None else found.where(_is_within(frames, frames))
    return kept.select(*(_where_affected(node, name) if name in _VERSIONS else F.col(quoted(name)) for name in names))


def _where_affected(node: Window, copies: str) -> Column:
    """Copies in a version, in partitions where some of its results may have changed."""
    is_wanted = F.max(F.col(AFFECTED) & (F.col(copies) > 0)).over(Over.partitionBy(*columns_of(node.partition)))
    return F.when(is_wanted, F.col(copies)).otherwise(F.lit(0).cast("bigint")).alias(copies)


def _up_to_here(node: Window, order: list[Column], *, with_peers: bool = False) -> WindowSpec:
    """Frame up to the current row, or to the last one equal to it."""
    over = Over.partitionBy(*columns_of(node.partition)).orderBy(*order)
    return (over.rangeBetween if with_peers else over.rowsBetween)(Over.unboundedPreceding, Over.currentRow)


def _is_within(before: int | None, after: int | None) -> Column:
    """Whether a row has changed, or is near one that has.

    ``before`` and ``after`` are the most rows between them; ``None`` for any number.
    """
    near = [_is_changed()]
    for copies in _VERSIONS:
        rows_after = _first(copies) - F.col(_last(copies))
        rows_before = F.col(_next(copies)) - F.col(_until(copies))
        for distance, most in ((rows_after, after), (rows_before, before)):
            if most != 0:
                near.append(distance.isNotNull() if most is None else distance <= most)
    return F.coalesce(reduce(or_, near), F.lit(False))


def _is_changed() -> Column:
    return F.col(OLD_COPIES) != F.col(NEW_COPIES)


def _until(copies: str) -> str:
    """Copies in a version up to a row, its own included."""
    return f"{copies}_until"


def _last(copies: str) -> str:
    """The place of the last changed row up to a row."""
    return f"{copies}_last"


def _next(copies: str) -> str:
    """The place of the next changed row from a row on."""
    return f"{copies}_next"


def _first(copies: str) -> Column:
    """The place of the first copy of a row in a version."""
    return F.col(_until(copies)) - F.col(copies) + 1
