"""Change sets reconciled with the stored rows of a state table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.aggregate_group import Affected
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.state_lib.constants import STATE_WEIGHT, WEIGHT
from relstate_dagster.state_lib.merge import sum_equal
from relstate_dagster.state_lib.state_table import StateTable

_STORED: Final = "_stored"
_HAS_NEW: Final = "_has_new"


def agreeing_counts(table: StateTable, change: RowSet, names: Sequence[str], on: Sequence[str]) -> DataFrame:
    """A change that retracts no row more often than it is stored.

    Parameters
    ----------
    change : shared, with equal rows summed.
    names : the columns of a row.
    on : those by which rows are looked up; all that can be compared.
    """
    summed = _with_stored(table, change, names, on)
    left = summed.select(*columns_of(names), F.greatest(F.col(WEIGHT), -F.col(_STORED)).alias(WEIGHT))
    return left.where(f"{WEIGHT} != 0")


def agreeing_rows(table: StateTable, change: RowSet, names: Sequence[str], key: Sequence[str]) -> DataFrame:
    """A change after which each key has at most one row.

    An insertion replaces the key's stored row.

    Parameters as of :func:`agreeing_counts`; ``key`` is empty where there is one row at most.
    """
    is_new, zero = F.col(WEIGHT) > 0, F.lit(0).cast("bigint")
    of_key = Window.partitionBy(*columns_of(key)) if key else Window.partitionBy(F.lit(0))
    summed = _with_stored(table, change, names, key).withColumn(_HAS_NEW, F.max(is_new).over(of_key))
    remaining = F.greatest(F.col(_STORED) + F.col(WEIGHT), zero)
    now = F.when(F.col(_HAS_NEW), is_new.cast("bigint")).otherwise(remaining)
    return summed.select(*columns_of(names), (now - F.col(_STORED)).alias(WEIGHT)).where(f"{WEIGHT} != 0")


def _with_stored(table: StateTable, change: RowSet, names: Sequence[str], on: Sequence[str]) -> DataFrame:
    """Rows of a change with equal stored ones.

    ``_stored`` is their weight before, ``_weight`` the new one.
    """
    columns, zero = columns_of(names), F.lit(0).cast("bigint")
    found = Affected.by(change, on).stored(table, on, names)
    stored = found.select(*columns, F.col(STATE_WEIGHT).alias(_STORED), zero.alias(WEIGHT))
    both = stored.union(change.frame.select(*columns, zero.alias(_STORED), WEIGHT))
    return sum_equal(both, table.desc.schema, names, {_STORED: F.sum(_STORED), WEIGHT: F.sum(WEIGHT)})
