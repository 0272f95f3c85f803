"""Memcomparable row encoding of storage primary keys: comparing the bytes compares the rows.

Two implementations of one byte layout (:mod:`.state_lib.row_encoding.layout`): Spark expressions for change sets, and
a pure-Python twin for single rows and for decoding. Golden bytes and property tests bind the two.
"""

from relstate_dagster.state_lib.row_encoding.ddl import contains_map, parse_type, parts_of, to_ddl, with_unique_fields
from relstate_dagster.state_lib.row_encoding.layout import EncodedPart, encoded_parts
from relstate_dagster.state_lib.row_encoding.python_codec import decode_row, encode_row, normalise
from relstate_dagster.state_lib.row_encoding.spark_codec import encode_columns, encode_key, encode_storage_key, storage_key_sql

__all__ = [
    "EncodedPart",
    "contains_map",
    "decode_row",
    "encode_columns",
    "encode_key",
    "encode_row",
    "encode_storage_key",
    "encoded_parts",
    "normalise",
    "parse_type",
    "parts_of",
    "storage_key_sql",
    "to_ddl",
    "with_unique_fields",
]
