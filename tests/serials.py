"""Row ids taken apart."""

from __future__ import annotations

from dataclasses import dataclass

from relstate_dagster.state_lib.serial import SEQUENCE_BITS, VNODE_BITS, first_row_id


@dataclass(frozen=True, slots=True, order=True)
class Serial:
    """One row id: milliseconds since 2024, vnode, and number in both."""

    time_ms: int
    vnode: int
    sequence: int

    def __int__(self) -> int:
        return (self.time_ms << VNODE_BITS | self.vnode) << SEQUENCE_BITS | self.sequence

    @classmethod
    def from_int(cls, row_id: int) -> Serial:
        """Take a row id apart."""
        above = row_id >> SEQUENCE_BITS
        return cls(above >> VNODE_BITS, above % (1 << VNODE_BITS), row_id % (1 << SEQUENCE_BITS))

    @classmethod
    def of_ordinal(cls, base_ms: int, ordinal: int) -> Serial:
        """The id of a batch's row of that number, from 0."""
        return cls.from_int(first_row_id(base_ms) + ordinal)
