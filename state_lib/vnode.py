"""Virtual nodes: which part of a state table a row is in.

``vnode = crc32(encoded distribution key) mod vnode_count``, with a power of two up to 1024. A row's vnode among *n* is the
low bits of its vnode among *2n*, so doubling splits each vnode into two and moves nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from relstate_dagster.state_lib.constants import MAX_VNODE_COUNT, ROW_ID
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.row_encoding import EncodedPart, encode_columns, encode_row, parse_type, storage_key_sql
from relstate_dagster.state_lib.serial import vnode_in, vnode_of_row_id, vnode_of_row_id_sql
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.table_schema import KeyPart, StateTableDesc, StateTableSchema
from relstate_dagster.state_lib.tuning import tuning


def check_vnode_count(vnode_count: int) -> None:
    """Refuse a count that is not a power of two between 1 and 1024.

    Raises
    ------
    PlanError
    """
    if not 1 <= vnode_count <= MAX_VNODE_COUNT or vnode_count & (vnode_count - 1):
        raise PlanError(f"a vnode count is a power of two from 1 to {MAX_VNODE_COUNT}, not {vnode_count}")


def fitting_vnode_count(schema: StateTableSchema, vnode_count: int, stored_bytes: int) -> int:
    """Vnode count doubled until a table's bytes fit.

    A count never shrinks, and a singleton keeps its one.

    Rows that were stored before stay in the vnode they are in until their table is rewritten: :func:`vnodes_of_row` looks
    there, too.
    """
    check_vnode_count(vnode_count)
    if not schema.distribution_key:
        return vnode_count
    while stored_bytes > vnode_count * tuning().vnode_bytes and vnode_count < MAX_VNODE_COUNT:
        vnode_count *= 2
    return vnode_count


def vnode_of(encoded_distribution_key: Column, vnode_count: int) -> Column:
    """The vnode of each row, as INT.

    Parameters
    ----------
    encoded_distribution_key : BINARY, as ``encode_columns`` makes it.
    vnode_count : a power of two up to 1024.
    """
    check_vnode_count(vnode_count)
    if vnode_count == 1:
        return F.lit(0)
    return F.crc32(encoded_distribution_key).bitwiseAND(F.lit(vnode_count - 1)).cast("int")


def table_vnode(
    schema: StateTableSchema, vnode_count: int, column: Callable[[str], Column] = lambda name: F.col(quoted(name))
) -> Column:
    """Vnode of a table's rows, from their columns.

    An empty distribution key is a singleton (vnode 0).
    """
    check_vnode_count(vnode_count)
    if vnode_count == 1 or not schema.distribution_key:
        return F.lit(0)
    if schema.distribution_key == (ROW_ID,):
        return vnode_of_row_id(column(ROW_ID)).bitwiseAND(F.lit(vnode_count - 1))
    return vnode_of(encode_columns(schema.columns, schema.distribution_key, column), vnode_count)


def table_vnode_sql(schema: StateTableSchema, vnode_count: int, column: Callable[[str], str]) -> str | None:
    """As :func:`table_vnode`, in SQL; ``None`` where keys are not encoded by a function.

    ``column`` writes a column name in SQL.
    """
    if vnode_count == 1 or not schema.distribution_key:
        return "0"
    if schema.distribution_key == (ROW_ID,):
        return f"{vnode_of_row_id_sql(column(ROW_ID))} & {vnode_count - 1}"
    key = storage_key_sql(schema.columns, [KeyPart(name) for name in schema.distribution_key], column)
    return None if key is None else f"CAST(crc32({key}) & {vnode_count - 1} AS INT)"


def row_vnode(schema: StateTableSchema, vnode_count: int, row: Mapping[str, Any]) -> int:
    """As :func:`table_vnode`, for one row in Python.

    Or as much of it as the distribution key needs.

    Raises
    ------
    StateError
        A value does not fit its column.
    """
    check_vnode_count(vnode_count)
    if vnode_count == 1 or not schema.distribution_key:
        return 0
    if schema.distribution_key == (ROW_ID,):
        return vnode_in(row[ROW_ID] or 0) & (vnode_count - 1)
    parts = [EncodedPart(parse_type(schema.column_type(name))) for name in schema.distribution_key]
    return zlib.crc32(encode_row([row[name] for name in schema.distribution_key], parts)) & (vnode_count - 1)


def vnodes_of_row(desc: StateTableDesc, row: Mapping[str, Any]) -> frozenset[int]:
    """Vnodes of a stored row, one for each count that its table had.

    They are about four of 64 where it began with one.
    """
    newest = row_vnode(desc.schema, desc.vnode_count, row)
    counts = (1 << n for n in range(desc.first_vnode_count.bit_length() - 1, desc.vnode_count.bit_length()))
    return frozenset(newest & (count - 1) for count in counts)
