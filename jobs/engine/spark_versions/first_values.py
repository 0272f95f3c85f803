"""First values of each group: by an aggregate from Spark 4.2 on, by ranks before.

``min_by`` and ``max_by`` of a number of rows came with Spark 4.2. Before it, rows are ranked in each group, which sorts them.
Neither holds more of a group than is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from relstate_dagster.jobs.engine.spark_versions.release import is_since
from relstate_dagster.state_lib.sql_text import quoted


class FirstValues(NamedTuple):
    """An array of the first values of each group.

    Parameters
    ----------
    value : the column that is sorted by. Among the rows it has no NULL and, in a group, no value twice.
    pair : what the array has of a row: a struct, as SQL, whose first field is the value.
    rows : which rows to take, as SQL.
    most : how many at most.
    descending : whether the greatest values come first.
    """

    value: str
    pair: str
    rows: str
    most: int
    descending: bool


def first_values(rows: DataFrame, group: Sequence[str], wanted: Mapping[str, FirstValues]) -> DataFrame:
    """The first values of each group, in sorted arrays by name."""
    pick = _by_aggregate if is_since(rows.sparkSession, 4, 2) else _by_rank
    return pick(rows, group, wanted)


def _by_aggregate(rows: DataFrame, group: Sequence[str], wanted: Mapping[str, FirstValues]) -> DataFrame:
    arrays = [
        f"{'max_by' if w.descending else 'min_by'}({w.pair}, {w.value}, {w.most}) FILTER (WHERE {w.rows}) AS {name}"
        for name, w in wanted.items()
    ]
    return rows.groupBy(*map(_column, group)).agg(*map(F.expr, arrays))


def _by_rank(rows: DataFrame, group: Sequence[str], wanted: Mapping[str, FirstValues]) -> DataFrame:
    orders: dict[tuple[str, bool], list[FirstValues]] = {}
    for w in wanted.values():
        orders.setdefault((w.value, w.descending), []).append(w)
    ranks = {order: f"_rank_{n}" for n, order in enumerate(orders)}
    first = rows
    for (value, descending), of_order in orders.items():
        order = F.col(value).desc() if descending else F.col(value)
        sides = [F.expr(w.rows) for w in of_order]
        rank = F.row_number().over(Window.partitionBy(*map(_column, group), *sides).orderBy(order))
        first = first.withColumn(ranks[value, descending], rank)
        if len(orders) == 1:
            # A filter of the rank alone: Spark then drops later rows of a group before it moves and sorts them.
            first = first.where(F.col(ranks[value, descending]) <= max(w.most for w in of_order))
    arrays = [
        f"slice(sort_array(array_agg({w.pair}) FILTER (WHERE {w.rows} AND {ranks[w.value, w.descending]} <= {w.most}), "
        f"{'false' if w.descending else 'true'}), 1, {w.most}) AS {name}"
        for name, w in wanted.items()
    ]
    return first.groupBy(*map(_column, group)).agg(*map(F.expr, arrays))


def _column(name: str) -> Column:
    return F.col(quoted(name))
