"""Python values as typed Spark literals, so that filters reach files' statistics."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.state_lib.row_encoding import encode_row, normalise, parse_type
from relstate_dagster.state_lib.row_encoding.layout import EncodedPart

_UNIX = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def literal(value: Any, ddl: str) -> Column | None:
    """A literal of a value, or None where its type (struct, array, map) has none.

    Raises
    ------
    StateError
        The value does not fit the type.
    """
    data_type = parse_type(ddl)
    if isinstance(data_type, (T.StructType, T.ArrayType, T.MapType, T.VariantType)):
        return None
    if value is None or isinstance(data_type, T.NullType):
        return F.lit(None).cast(ddl)
    encode_row([value], [EncodedPart(data_type)])
    if isinstance(data_type, T.TimestampType):
        # By the instant: PySpark's own literal of a datetime depends on the process's time zone.
        return F.timestamp_micros(F.lit((normalise(value, data_type) - _UNIX) // dt.timedelta(microseconds=1)))
    if isinstance(data_type, T.TimestampNTZType):
        return F.lit(value.isoformat()).cast(ddl)
    if isinstance(data_type, T.YearMonthIntervalType):
        return (F.expr("INTERVAL '1' MONTH") * F.lit(value)).cast(ddl)
    return F.lit(bytes(value) if isinstance(data_type, T.BinaryType) else value).cast(ddl)
