"""Values made comparable: Spark compares and groups by neither maps nor VARIANT values, and by collations not to the letter."""

from __future__ import annotations

from pyspark.sql import types as T

from relstate_dagster.jobs.planner.map_keys import with_sorted_maps
from relstate_dagster.state_lib.row_encoding import contains_map, parts_of


def comparable(value: str, data_type: T.DataType) -> str:
    """A value, as SQL text, in a form of which two are equal (``<=>``) where the values are: SQL text.

    Maps are equal where their entries are. NaN equals NaN and 0.0 equals -0.0, as in all of Spark.
    """
    if any(isinstance(part, T.VariantType) for part in parts_of(data_type)):
        return f"to_json({value})"
    if isinstance(data_type, T.StringType) and data_type.collation != "UTF8_BINARY":
        return f"({value}) COLLATE UTF8_BINARY"
    return with_sorted_maps(value, data_type) if contains_map(data_type) else value
