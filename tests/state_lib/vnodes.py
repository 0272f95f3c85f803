"""Vnodes of single rows in Python, which what Spark computes is compared with."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.row_encoding import EncodedPart, encode_row, parse_type
from relstate_dagster.state_lib.serial import Serial
from relstate_dagster.state_lib.table_schema import StateTableSchema
from relstate_dagster.state_lib.vnode import check_vnode_count


def vnode_of_bytes(encoded_distribution_key: bytes, vnode_count: int) -> int:
    """As ``vnode_of``."""
    check_vnode_count(vnode_count)
    return zlib.crc32(encoded_distribution_key) & (vnode_count - 1)


def row_vnode(schema: StateTableSchema, vnode_count: int, row: Mapping[str, Any]) -> int:
    """As ``table_vnode``, for one row, or as much of it as the distribution key needs."""
    check_vnode_count(vnode_count)
    if vnode_count == 1 or not schema.distribution_key:
        return 0
    if schema.distribution_key == (ROW_ID,):
        return Serial.from_int(row[ROW_ID]).vnode & (vnode_count - 1)
    parts = [EncodedPart(parse_type(schema.column_type(name))) for name in schema.distribution_key]
    return vnode_of_bytes(encode_row([row[name] for name in schema.distribution_key], parts), vnode_count)
