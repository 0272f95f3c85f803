"""First values of each group: by an aggregate from Spark 4.2 on, by ranks before.

``min_by`` and ``max_by`` of a number of rows came with Spark 4.2. Before it, rows are ranked in each group, which sorts them.
Neither holds more of a group than is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from relstate_dagster.jobs.engine.spark_versions.release import is_since
from relstate_dagster.state_lib.sql_text import quoted


def first_values(
    rows: DataFrame, group: Sequence[str], value: str, pair: str, wanted: Mapping[str, tuple[str, int]], *, descending: bool
) -> DataFrame:
    """The first values of each group, each in a sorted array.

    Parameters
    ----------
    value : the column that is sorted by. It has no NULL and, in a group, no value twice.
    pair : what the array has of a row: a struct, as SQL, whose first field is the value.
    wanted : by the name of the array, which rows to take, as SQL, and how many at most.
    """
    pick = _by_aggregate if is_since(rows.sparkSession, 4, 2) else _by_rank
    return pick(rows, group, value, pair, wanted, descending=descending)


def _by_aggregate(
    rows: DataFrame, group: Sequence[str], value: str, pair: str, wanted: Mapping[str, tuple[str, int]], *, descending: bool
) -> DataFrame:
    call = "max_by" if descending else "min_by"
    arrays = [f"{call}({pair}, {value}, {most}) FILTER (WHERE {which}) AS {name}" for name, (which, most) in wanted.items()]
    return rows.groupBy(*map(_column, group)).agg(*map(F.expr, arrays))


def _by_rank(
    rows: DataFrame, group: Sequence[str], value: str, pair: str, wanted: Mapping[str, tuple[str, int]], *, descending: bool
) -> DataFrame:
    sides = [F.expr(which) for which, _ in wanted.values()]
    order = F.col(value).desc() if descending else F.col(value)
    rank = F.row_number().over(Window.partitionBy(*map(_column, group), *sides).orderBy(order))
    # A filter of the rank alone: Spark then drops later rows of a group before it moves and sorts them.
    first = rows.withColumn("_rank", rank).where(F.col("_rank") <= max(most for _, most in wanted.values()))
    ascending = "false" if descending else "true"
    arrays = [
        f"slice(sort_array(array_agg({pair}) FILTER (WHERE {which}), {ascending}), 1, {most}) AS {name}"
        for name, (which, most) in wanted.items()
    ]
    return first.groupBy(*map(_column, group)).agg(*map(F.expr, arrays))


def _column(name: str) -> Column:
    return F.col(quoted(name))
