"""Bags of weighted rows (Z-sets) as DataFrames."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.row_sums import columns_of_schema, consolidate
from relstate_dagster.state_lib.sql_text import quoted


def columns_of(names: Sequence[str]) -> list[str]:
    """Quoted column names for the DataFrame API.

    It would take a dot for a field access.
    """
    return [quoted(name) for name in names]


def sum_equal_rows(df: DataFrame) -> DataFrame:
    """:func:`consolidate` by all columns."""
    return consolidate(df, [column for column in columns_of_schema(df.schema) if column.name != WEIGHT])


def repeat_by_weight(df: DataFrame, weight: str) -> DataFrame:
    """Each row as often as its weight says.

    Rows of weight 0 or less vanish.
    """
    copies = df.where(F.col(weight) > 0)
    repeated = copies.withColumn(weight, F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(weight))))
    return repeated.drop(weight)
