"""Findings of an epoch that settle the steps of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChangeFound:
    """A view's change set as it was computed.

    Parameters
    ----------
    rows : of it, old and new ones.
    is_held : the driver has them.
    goes : whether some row of the published table goes; ``None`` where that is not known yet.
    key_bytes : of the keys of rows that go; ``None`` where they are not known, or too many.
    gone_rows : of the published table, updated ones included; ``None`` where they were not counted.
    """

    rows: int
    is_held: bool = False
    goes: bool | None = None
    key_bytes: int | None = None
    gone_rows: int | None = None


@dataclass(frozen=True, slots=True)
class StateFound:
    """A view's state as its files are.

    Parameters
    ----------
    bytes, rows : of each state table, by table id, unmerged.
    merged_rows : of each at its last rewrite.
    expired : tables that have expired rows.
    closed : tables that have rows of closed groups.
    """

    bytes: Mapping[int, int]
    rows: Mapping[int, int]
    merged_rows: Mapping[int, int] = field(default_factory=dict)
    expired: frozenset[int] = frozenset()
    closed: frozenset[int] = frozenset()
