"""Serial: the row ids of a keyless append-only source, which carry their vnode.

============  ======================  ==========  ==========
sign, 1 bit   time, 41 bits           vnode,      sequence,
              (ms since the epoch     10 bits     12 bits
              below)
============  ======================  ==========  ==========
0             2024-01-01 … 2093       0 … 1023    0 … 4095
============  ======================  ==========  ==========

The vnode is read out of the id, not hashed, so a source's rows need no exchange. A hash of ``_row_id`` would have to be
computed and shuffled by, whereas the generator can choose the vnode of its ids.

The ids of a batch are dense, from a first one on. A run of 4,096 rows is in one vnode, the next run in the next. After the
last vnode comes the next millisecond. Which vnode a batch begins in is a hash of its time, so that batches are spread over
all of them, small ones too. Rows are not dealt to vnodes one by one. Each vnode that a batch meets is a file of its epoch,
and a file costs 12 to 25 ms, as much as thousands of rows. Ids grow with the rows of a batch and from batch to batch, so
they do in each vnode.
"""

from __future__ import annotations

import zlib
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from relstate_dagster.state_lib.errors import StateError

#: 2024-01-01T00:00:00Z in milliseconds since 1970: the zero of an id's time.
SERIAL_EPOCH_MS: Final = 1_704_067_200_000

TIME_BITS: Final = 41
VNODE_BITS: Final = 10
SEQUENCE_BITS: Final = 12

_VNODE_MASK: Final = (1 << VNODE_BITS) - 1
_TIME_SHIFT: Final = VNODE_BITS + SEQUENCE_BITS
_MAX_TIME: Final = (1 << TIME_BITS) - 1


def first_row_id(base_ms: int) -> int:
    """Id of a batch's first row; the others follow without gaps."""
    vnode = zlib.crc32(base_ms.to_bytes(8, "big")) & _VNODE_MASK
    return (base_ms << _TIME_SHIFT) | (vnode << SEQUENCE_BITS)


def next_base_ms(now_ms: int, last_base_ms: int | None, last_row_count: int) -> int:
    """Base of the next batch: not before the clock, after all earlier ids.

    Parameters
    ----------
    now_ms : milliseconds since 1970, by the clock.
    last_base_ms : the base of the batch before, in milliseconds since :data:`SERIAL_EPOCH_MS`; None for the first.
    last_row_count : how many ids that batch handed out.

    Returns
    -------
    int
        Milliseconds since :data:`SERIAL_EPOCH_MS`.

    Raises
    ------
    StateError
        41 bits of time have run out.
    """
    base_ms = max(0, now_ms - SERIAL_EPOCH_MS)
    if last_base_ms is not None:
        # A clock set back, or a batch of more rows than its milliseconds hold, must not repeat an id.
        last_id = first_row_id(last_base_ms) + max(last_row_count, 1) - 1
        base_ms = max(base_ms, (last_id >> _TIME_SHIFT) + 1)
    if base_ms > _MAX_TIME:
        raise StateError(f"row ids have run out: {base_ms} ms since 2024 exceed {TIME_BITS} bits; check the clock")
    return base_ms


def row_id_of_ordinal(base_ms: int, ordinal: Column) -> Column:
    """Row ids of a batch, from dense BIGINT ordinals (from 0).

    Sequence, vnode and time are one sum.
    """
    return F.lit(first_row_id(base_ms)).cast("bigint") + ordinal.cast("bigint")


def vnode_in(row_id: int) -> int:
    """The 10 bits of vnode in a row id."""
    return (row_id >> SEQUENCE_BITS) & _VNODE_MASK


def vnode_of_row_id_sql(row_id: str) -> str:
    """As :func:`vnode_of_row_id`, in SQL."""
    return f"CAST(shiftright({row_id}, {SEQUENCE_BITS}) & {_VNODE_MASK} AS INT)"


def vnode_of_row_id(row_id: Column) -> Column:
    """The 10 bits of vnode in a row id, as INT."""
    return F.shiftright(row_id, SEQUENCE_BITS).bitwiseAND(F.lit(_VNODE_MASK)).cast("int")
