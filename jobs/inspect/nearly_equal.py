"""Rows that are equal but for the rounding of floating-point sums, paired by Spark.

Sums of floating-point numbers depend on the order of addition, which is not fixed. So rows that differ exactly are compared
again: those with the same exact columns, sorted by the inexact ones, are paired in that order and compared within a
tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.view_epoch.shown_rows import Cells
from relstate_dagster.state_lib.row_encoding import contains_map
from relstate_dagster.state_lib.tuning import tuning

#: Numbers that differ by no more than this are equal.
RELATIVE_TOLERANCE: Final = 1e-9
_ABSOLUTE_TOLERANCE: Final = 1e-12
_PLACE: Final = "_place"
_CELLS: Final = "_cells"


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows missing from, and unexpected in, one of two bags: counts and examples."""

    missing: int = 0
    unexpected: int = 0
    missing_rows: tuple[Cells, ...] = ()
    unexpected_rows: tuple[Cells, ...] = ()


def unmatched(
    differing: DataFrame, columns: Sequence[str], count: str, texts: Sequence[Column] = (), shown: int = 0
) -> Difference:
    """Rows of each of two bags without a nearly equal one: counts and examples.

    Parameters
    ----------
    differing : distinct rows and ``count``: how many more of them the one bag has (or, below zero, the other).
    columns : those of a row.
    texts : of those, for showing.
    shown : how many rows of each bag are shown.
    """
    differing = differing.withColumn(_CELLS, F.array(*texts))
    fields = [differing.schema[name] for name in columns]
    exact = [f.name for f in fields if not _is_inexact(f.dataType)]
    inexact = [f for f in fields if _is_inexact(f.dataType)]
    # By what is sorted, the same for both bags; rows with parts that have no order are left to the second look.
    order = [F.col(f.name) for f in inexact if not contains_map(f.dataType)] or [F.lit(0)]
    one, other = (
        _numbered(differing.where(F.col(count) * sign > 0), F.col(count) * sign, columns, exact, order) for sign in (1, -1)
    )
    left, right = one.alias("l"), other.alias("r")
    same = [F.col(f"l.{c}").eqNullSafe(F.col(f"r.{c}")) for c in exact] + [F.col(f"l.{_PLACE}") == F.col(f"r.{_PLACE}")]
    near = [_nearly(F.col(f"l.{f.name}"), F.col(f"r.{f.name}"), f.dataType) for f in inexact]
    paired = left.join(right, reduce(and_, same), "full_outer")
    unpaired = paired.where(
        F.col(f"l.{_PLACE}").isNull() | F.col(f"r.{_PLACE}").isNull() | ~F.coalesce(reduce(and_, near), F.lit(False))
    )
    parts = (*columns, _CELLS)
    sides = unpaired.select(
        F.when(F.col(f"l.{_PLACE}").isNotNull(), F.struct(*(F.col(f"l.{c}").alias(c) for c in parts))).alias("l"),
        F.when(F.col(f"r.{_PLACE}").isNotNull(), F.struct(*(F.col(f"r.{c}").alias(c) for c in parts))).alias("r"),
    )
    rows = sides.limit(tuning().compared_pairs_rows + 1).collect()
    if len(rows) <= tuning().compared_pairs_rows:
        missing, unexpected = _without_partner([r["l"] for r in rows if r["l"]], [r["r"] for r in rows if r["r"]])
        return Difference(len(missing), len(unexpected), _cells(missing[:shown]), _cells(unexpected[:shown]))
    counted = sides.agg(F.count("l").alias("l"), F.count("r").alias("r")).collect()[0]
    some = {side: _cells([r[side] for r in rows if r[side]][:shown]) for side in ("l", "r")}
    return Difference(int(counted["l"]), int(counted["r"]), some["l"], some["r"])


def _cells(rows: Sequence[Row]) -> tuple[Cells, ...]:
    return tuple(tuple(row[_CELLS]) for row in rows)


def _numbered(rows: DataFrame, times: Column, columns: Sequence[str], exact: list[str], order: list[Column]) -> DataFrame:
    """Rows as often as they occur, numbered among those with the same exact columns."""
    repeated = rows.select(*columns, _CELLS, F.explode(F.sequence(F.lit(1).cast("bigint"), times)).alias("_copy"))
    window = Window.partitionBy(*[F.col(c) for c in exact] or [F.lit(0)]).orderBy(*order)
    return repeated.withColumn(_PLACE, F.row_number().over(window)).drop("_copy")


def _is_inexact(data_type: T.DataType) -> bool:
    if isinstance(data_type, T.StructType):
        return any(_is_inexact(f.dataType) for f in data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return _is_inexact(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return True  # maps have no equality in Spark
    return isinstance(data_type, T.FloatType | T.DoubleType)


def _nearly(a: Column, b: Column, data_type: T.DataType) -> Column:
    """Whether two values are equal within the tolerance, NULL equal to NULL."""
    both_null = a.isNull() & b.isNull()
    if isinstance(data_type, T.FloatType | T.DoubleType):
        x, y = a.cast("double"), b.cast("double")
        allowed = F.greatest(F.lit(RELATIVE_TOLERANCE) * F.greatest(F.abs(x), F.abs(y)), F.lit(_ABSOLUTE_TOLERANCE))
        # Infinity minus infinity is NaN, which Spark holds for greater than any number.
        near = a.eqNullSafe(b) | (F.abs(x - y) <= allowed)
    elif isinstance(data_type, T.StructType):
        near = reduce(and_, [_nearly(a.getField(f.name), b.getField(f.name), f.dataType) for f in data_type.fields])
    elif isinstance(data_type, T.ArrayType):
        element = data_type.elementType
        zipped = F.zip_with(a, b, lambda x, y: _nearly(x, y, element))
        near = (F.size(a) == F.size(b)) & F.forall(zipped, lambda x: x)
    elif isinstance(data_type, T.MapType):
        value = data_type.valueType
        near = (F.size(a) == F.size(b)) & F.forall(
            F.map_entries(a), lambda e: F.map_contains_key(b, e["key"]) & _nearly(e["value"], F.element_at(b, e["key"]), value)
        )
    else:
        return a.eqNullSafe(b)
    return both_null | (a.isNotNull() & b.isNotNull() & F.coalesce(near, F.lit(False)))


def _without_partner(left: Sequence[Row], right: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows of two short lists without a nearly equal row in the other.

    The last value of each row is apart.
    """
    free, alone = list(right), []
    for row in left:
        found = next((n for n, other in enumerate(free) if _nearly_values(row[:-1], other[:-1])), None)
        if found is None:
            alone.append(row)
        else:
            free.pop(found)
    return alone, free


def _nearly_values(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        near = math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE, abs_tol=_ABSOLUTE_TOLERANCE)
        return near or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_nearly_values(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_nearly_values(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
