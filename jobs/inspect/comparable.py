"""Values in a form that Spark can compare: maps, VARIANT values, and collated texts."""

from __future__ import annotations

from pyspark.sql import types as T

from relstate_dagster.jobs.planner.map_keys import with_sorted_maps
from relstate_dagster.state_lib.row_encoding import contains_map, parts_of


def comparable(value: str, data_type: T.DataType) -> str:
    """A value, as SQL, in a form that is equal (``<=>``) exactly for equal values.

    Maps are equal where their entries are. NaN equals NaN and 0.0 equals -0.0, as in all of Spark.
    """
    if any(isinstance(part, T.VariantType) for part in parts_of(data_type)):
        return f"to_json({value})"
    if isinstance(data_type, T.StringType) and data_type.collation != "UTF8_BINARY":
        return f"({value}) COLLATE UTF8_BINARY"
    return with_sorted_maps(value, data_type) if contains_map(data_type) else value
