"""Virtual nodes: which part of a state table a row is in.

``vnode = crc32(encoded distribution key) mod vnode_count``, with a power of two up to 1024: a row's vnode among *n* is
the low bits of its vnode among *2n*, so that doubling splits each vnode into two and moves nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from relstate_dagster.state_lib.columns import quoted
from relstate_dagster.state_lib.constants import MAX_VNODE_COUNT, ROW_ID
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.row_encoding import encode_columns
from relstate_dagster.state_lib.serial import vnode_of_row_id
from relstate_dagster.state_lib.sizing import sizing
from relstate_dagster.state_lib.table_schema import StateTableSchema


def check_vnode_count(vnode_count: int) -> None:
    """Refuse a count that is not a power of two between 1 and 1024.

    Raises
    ------
    PlanError
    """
    if not 1 <= vnode_count <= MAX_VNODE_COUNT or vnode_count & (vnode_count - 1):
        raise PlanError(f"a vnode count is a power of two from 1 to {MAX_VNODE_COUNT}, not {vnode_count}")


def fitting_vnode_count(schema: StateTableSchema, vnode_count: int, stored_bytes: int) -> int:
    """The count doubled until a table's stored bytes fit its vnodes; a count never shrinks, and a singleton keeps its one.

    Rows that were stored before stay in the vnode they are in until their table is rewritten. Nobody looks for a row by its
    vnode, so readers need not know.
    """
    check_vnode_count(vnode_count)
    if not schema.distribution_key:
        return vnode_count
    while stored_bytes > vnode_count * sizing().vnode_bytes and vnode_count < MAX_VNODE_COUNT:
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
    """The vnode of a table's rows, from its own columns; an empty distribution key is a singleton (vnode 0)."""
    check_vnode_count(vnode_count)
    if vnode_count == 1 or not schema.distribution_key:
        return F.lit(0)
    if schema.distribution_key == (ROW_ID,):
        return vnode_of_row_id(column(ROW_ID)).bitwiseAND(F.lit(vnode_count - 1))
    return vnode_of(encode_columns(schema.columns, schema.distribution_key, column), vnode_count)
