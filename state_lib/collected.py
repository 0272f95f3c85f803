"""Rows of a frame brought to the driver, as far as it may hold them."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from state_lib.row_encoding.spark_codec import quoted


def collected(df: DataFrame) -> pa.Table | None:
    """All rows of a frame; ``None`` where Spark finds that they are more than ``spark.driver.maxResultSize``.

    How many rows a change meets is known only once they are there: one row of a table of countries can meet half of all
    orders. Whoever asks must be able to go on without holding them.
    """
    try:
        return df.toArrow()
    except (PySparkException, Py4JJavaError) as error:
        if "spark.driver.maxResultSize" in str(error):
            return None
        raise


def nullable_within(df: DataFrame) -> DataFrame:
    """The same rows, parts of structs, arrays and maps declared as nullable, as they come back from state.

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
