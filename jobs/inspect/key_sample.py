"""A view compared with its query run in full at some keys only.

The keys are picked from the published rows. The query is filtered to them as any query over it would be, so Spark pushes the
filter down to what it reads, as far as the query lets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.plan.nodes import Materialize
from relstate_dagster.jobs.planner.limits import before_limit
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint

#: Types whose values Python has as Spark has them: a filter with the values themselves reaches files.
_LITERAL: Final = (T.IntegralType, T.StringType, T.DecimalType, T.DateType, T.BooleanType)
#: More keys than these are joined with only.
_MOST_LITERALS: Final = 10_000
#: Types whose values Spark compares exactly.
_EXACT: Final = (*_LITERAL, T.TimestampType, T.TimestampNTZType, T.BinaryType)


@dataclass(frozen=True, slots=True)
class KeySample:
    """Rows of sampled keys, by the query and as published, and the number of keys."""

    expected: DataFrame
    actual: DataFrame
    keys: int


def sample_of(expected: DataFrame, actual: DataFrame, plan: Materialize, count: int) -> KeySample | None:
    """The rows of up to ``count`` keys, picked by chance.

    Parameters
    ----------
    expected, actual : the query's frame, and the published rows, with the same columns.

    Returns
    -------
    ``None`` where there is no sample: the view is empty, no column of it tells rows apart exactly, or a LIMIT makes all rows
    depend on each other.
    """
    names = [f"_c{n}" for n in range(len(actual.columns))]
    right, picked = expected.toDF(*names), actual.toDF(*names)
    keys = [names[n] for n in _key_columns(picked.schema, plan)]
    if not keys or before_limit(expected) is not None:
        return None
    held = local_checkpoint(picked.select(*keys).orderBy(F.rand()).limit(count).distinct())
    values = held.select(*(key for key in keys if _is(picked.schema[key], _LITERAL))).collect()
    if not (len(values) or held.count()):
        return None
    right, picked = (_at(frame, keys, held, values) for frame in (right, picked))
    return KeySample(right, picked, len(values) or held.count())


def _at(frame: DataFrame, keys: Sequence[str], held: DataFrame, values: Sequence[Row]) -> DataFrame:
    """Rows of a frame whose keys are held.

    ``values`` are those of their columns that can be written as literals.
    """
    if len(values) <= _MOST_LITERALS:
        for key in values[0].asDict() if values else ():
            frame = frame.where(_is_one_of(F.col(key), {row[key] for row in values}))
    others = held.toDF(*(f"_k{n}" for n in range(len(keys))))
    same = [F.col(f"f.{key}").eqNullSafe(F.col(f"h._k{n}")) for n, key in enumerate(keys)]
    return frame.alias("f").join(F.broadcast(others.alias("h")), reduce(Column.__and__, same), "left_semi")


def _is_one_of(column: Column, values: set[Any]) -> Column:
    known = column.isin(*(value for value in values if value is not None))
    return known | column.isNull() if None in values else known


def _key_columns(schema: T.StructType, plan: Materialize) -> list[int]:
    """Columns that tell rows apart, compared exactly.

    The stream key's, if they are shown, else all.
    """
    exact = [n for n, field in enumerate(schema.fields) if _is(field, _EXACT)]
    of_key = [n for n in exact if plan.output[n].column in (plan.stream_key or ())]
    return of_key or exact


def _is(field: T.StructField, types: tuple[type[T.DataType], ...]) -> bool:
    return isinstance(field.dataType, types)
