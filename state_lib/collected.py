"""Rows of a frame brought to the driver, within its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.lake.commit import is_plain
from relstate_dagster.state_lib.lazy_frame import first_of_each_task, lazy
from relstate_dagster.state_lib.row_width import value_bytes
from relstate_dagster.state_lib.size_settings import Sizing
from relstate_dagster.state_lib.sql_text import quoted

_DEFAULTS: Final = Sizing()


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """Limits of rows that the driver holds.

    Parameters
    ----------
    held_bytes : in memory, of the rows of one change set.
    collected_bytes : in memory, of results that are only brought to be written.
    summed_rows : that the driver sums to find those that cancel out.
    is_final : more rows are left to Spark. Otherwise they end this computation, for one that is planned for them.
    """

    held_bytes: int = _DEFAULTS.driver_held_bytes
    collected_bytes: int = _DEFAULTS.driver_collected_bytes
    summed_rows: int = _DEFAULTS.driver_summed_rows
    is_final: bool = False


def collected(df: DataFrame, most_bytes: int) -> pa.Table | None:
    """All rows of a frame; ``None`` if they are too many for the driver.

    How many rows a change meets is known only once they are there: one row of a table of countries can meet half of all
    orders. Whoever asks must be able to go on without holding them.

    A task keeps its result in memory until it ends, and only then Spark compares it with ``spark.driver.maxResultSize``.
    One task that met 4.8 million rows filled a heap of 2 GB. So each lets through one row more than would be too many at
    most.

    Parameters
    ----------
    most_bytes : about how many bytes are too many, where a text has 20.
    """
    most_rows = rows_within(df, most_bytes)
    try:
        rows = first_of_each_task(df, most_rows).toArrow()
    except (PySparkException, Py4JJavaError) as error:
        if "spark.driver.maxResultSize" in str(error):
            return None
        raise
    return rows if rows.num_rows <= most_rows else None


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows that the driver holds, and the type that Spark gives them."""

    rows: pa.Table
    schema: T.StructType

    def select(self, names: Sequence[str]) -> HeldRows:
        """Some columns."""
        return HeldRows(self.rows.select(list(names)), T.StructType([self.schema[name] for name in names]))

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as a frame of a session."""
        return frame_of(spark, self.rows, self.schema)


def held_rows(df: DataFrame, most_bytes: int) -> HeldRows | None:
    """All rows of a frame; ``None`` if the driver, or Arrow, cannot hold them."""
    if not all(is_plain(f.dataType) for f in df.schema.fields):
        return None
    whole = nullable_within(df)
    rows = collected(whole, most_bytes)
    return None if rows is None else HeldRows(rows, whole.schema)


def rows_within(df: DataFrame, most_bytes: int) -> int:
    """Approximate number of rows of a frame that take a number of bytes in memory."""
    return most_bytes // value_bytes(df.schema)


def frame_of(spark: SparkSession, rows: pa.Table, schema: T.StructType | None = None) -> DataFrame:
    """A frame of rows that the driver holds.

    Spark reads an Arrow table chunk by chunk and ends at the first one without rows, silently; filters and sums leave such
    chunks. So it is given tables in one piece, and by nothing but this function.
    """
    whole = rows.combine_chunks()
    return lazy(spark.createDataFrame(whole) if schema is None else spark.createDataFrame(whole, schema))


def consolidated(rows: pa.Table, most_rows: int, *, must_sum: bool = False) -> pa.Table:
    """Weighted rows with equal ones summed and zeros dropped.

    So an update of columns that the view does not read ends here, and so does a row that is retracted and inserted again.
    Some rows are left unchanged, unless they have to be consolidated. These are rows with a column of no scalar type, more
    rows than it pays to sum, and rows of one sign, which cannot cancel.

    Parameters
    ----------
    most_rows : that are summed, unless they have to be.
    """
    if WEIGHT not in rows.column_names or (rows.num_rows > most_rows and not must_sum):
        return rows
    names = [name for name in rows.column_names if name != WEIGHT]
    if not names or any(pa.types.is_nested(rows.schema.field(name).type) for name in names):
        return rows
    weights = pc.min_max(rows[WEIGHT]).as_py()
    if weights["min"] is None or not (must_sum or weights["min"] < 0 < weights["max"]):
        return rows
    summed = rows.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")])
    summed = summed.rename_columns([*names, WEIGHT]).select(rows.column_names)
    return summed.filter(pc.field(WEIGHT) != 0).cast(rows.schema)


def sums_as_spark(schema: T.StructType) -> bool:
    """Whether :func:`consolidated` finds the same rows equal as Spark does.

    To Arrow 0.0 and -0.0 are two values.
    """
    apart = (T.FloatType, T.DoubleType, T.StructType, T.ArrayType, T.MapType)
    return len(schema.fields) > 1 and not any(isinstance(f.dataType, apart) for f in schema.fields)


def nullable_within(df: DataFrame) -> DataFrame:
    """The same rows, with nested parts declared nullable, as from state.

    A struct that is NULL has NULLs for its parts in Arrow, which refuses them where the parts are declared as never NULL.
    """
    relaxed = [_relaxed(field.dataType) for field in df.schema.fields]
    if all(new == field.dataType for new, field in zip(relaxed, df.schema.fields, strict=True)):
        return df
    return df.select(*(F.col(quoted(f.name)).cast(new).alias(f.name) for f, new in zip(df.schema.fields, relaxed, strict=True)))


def _relaxed(data_type: T.DataType) -> T.DataType:
    if isinstance(data_type, T.StructType):
        return T.StructType([T.StructField(f.name, _relaxed(f.dataType)) for f in data_type.fields])
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(_relaxed(data_type.elementType))
    if isinstance(data_type, T.MapType):
        return T.MapType(_relaxed(data_type.keyType), _relaxed(data_type.valueType))
    return data_type
