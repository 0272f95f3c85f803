"""Join record state: the rows of one side of a join, in one of three forms (seed ``JoinRecordStateView``).

=========================  ===============================  =======================================
form                       storage primary key              value
=========================  ===============================  =======================================
JoinKeyContainsUniqueKey   join key                         record
InputSideHasUniqueKey      join key, rest of unique key     record
InputSideHasNoUniqueKey    join key, rest of the record     appear times (the weight)
=========================  ===============================  =======================================

With no join key (a cartesian product) the join key is the empty row, and the table a singleton. The outer forms also
keep each record's number of associations, in the column ``_num_associations``. All are merged by sum: a record is
retracted by its own tombstone, and a changed count is a retraction under the old and an insertion under the new count.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from state_lib.constants import WEIGHT
from state_lib.errors import StateError
from state_lib.row_encoding import contains_map
from state_lib.state_table import StateTable
from state_lib.table_schema import KeyPart, MergeRule, StateColumn, StateKind, StateTableSchema

#: Rows of the other side that a record is associated with.
NUM_ASSOCIATIONS: Final = "_num_associations"


def form_of(join_key: Sequence[str], unique_key: Sequence[str] | None) -> StateKind:
    """Which of the three forms a side takes.

    Parameters
    ----------
    join_key : the side's columns in the join's equalities.
    unique_key : the side's stream key; None where it has none, empty where it has at most one row.
    """
    if unique_key is None:
        return StateKind.INPUT_SIDE_HAS_NO_UNIQUE_KEY
    if set(unique_key) <= set(join_key):
        return StateKind.JOIN_KEY_CONTAINS_UNIQUE_KEY
    return StateKind.INPUT_SIDE_HAS_UNIQUE_KEY


def join_state_schema(
    label: str,
    columns: Sequence[StateColumn],
    join_key: Sequence[str],
    unique_key: Sequence[str] | None,
    *,
    with_associations: bool,
) -> StateTableSchema:
    """The state table of one side of a join.

    Parameters
    ----------
    label : ``left`` or ``right``.
    columns : the columns of the side.
    join_key : its columns in the join's equalities; empty for a cartesian product.
    unique_key : its stream key, or None.
    with_associations : whether the join's type depends on how many rows a record is associated with.
    """
    form = form_of(join_key, unique_key)
    leading = tuple(dict.fromkeys(join_key))
    if unique_key is not None:
        rest = [name for name in unique_key if name not in leading]
    else:
        # A map has no order, so it stays out of the key; rows that differ in it alone are told apart when merged.
        rest = [c.name for c in columns if c.name not in leading and not contains_map(c.data_type)]
    extra = (StateColumn(NUM_ASSOCIATIONS, "bigint"),) if with_associations else ()
    return StateTableSchema(
        label=label,
        kind=form,
        columns=(*columns, *extra),
        storage_key=tuple(KeyPart(name) for name in dict.fromkeys((*leading, *rest))),
        prefix_length=len(leading),
        distribution_key=leading,
        merge=MergeRule.SUM,
    )


class JoinType(str, enum.Enum):
    """The joins whose output depends on how many rows a record is associated with."""

    OUTER = "outer"
    SEMI = "left semi"
    ANTI = "left anti"


def emitted_alone(join_type: JoinType, num_associations: int) -> bool:
    """Whether a record with so many associations is in the output by itself.

    For an outer join that is its row padded with NULLs; pairs are the inner part's business.
    """
    associated = num_associations > 0
    return associated if join_type is JoinType.SEMI else not associated


def association_change(join_type: JoinType, old_count: int, new_count: int) -> int:
    """The weight with which a record is emitted when its number of associations changes: −1, 0 or +1.

    Only 0 → n and n → 0 change anything: an outer or anti join loses the record's own row when the first association
    comes and gets it back when the last one goes, a semi join the other way round.

    Raises
    ------
    StateError
        A count is below 0: the other side retracted a row it never had.
    """
    if min(old_count, new_count) < 0:
        raise StateError(f"a number of associations went from {old_count} to {new_count}; it cannot be below 0")
    return emitted_alone(join_type, new_count) - emitted_alone(join_type, old_count)


@dataclass(frozen=True, slots=True)
class OuterRecord:
    """A record of a side, how often it appears, and its number of associations (−1 where that is not kept)."""

    record: tuple[Any, ...]
    appear_times: int
    num_associations: int = -1


class JoinRecordStateView:
    """The records of one side of a join, one at a time, over its state table.

    Epochs use the same table by change sets; this is the same state seen as the seed describes it.

    Parameters
    ----------
    table : a state table of :func:`join_state_schema`.
    ttl : whether state may have expired; only then may a record that is not there be retracted.
    """

    def __init__(self, table: StateTable, *, ttl: bool = False) -> None:
        self._table = table
        self._ttl = ttl
        self._schema = table.desc.schema
        self._outer = any(c.name == NUM_ASSOCIATIONS for c in self._schema.columns)
        self._names = [c.name for c in self._schema.columns if c.name != NUM_ASSOCIATIONS]
        self._has_unique_key = self._schema.kind is not StateKind.INPUT_SIDE_HAS_NO_UNIQUE_KEY

    def add_record(self, record: Sequence[Any], num_of_associations: int = 0) -> None:
        """Add a record; one that is there already appears once more, and has the number of associations given.

        Raises
        ------
        StateError
            The side has a unique key, and a record with this key is there.
        """
        stored = self._find(record)
        if stored is not None and self._has_unique_key:
            raise StateError(f"{self._table.place(self._key_of(record))}: a record is added whose key is there already")
        self._replace(record, stored, (stored.appear_times if stored else 0) + 1, num_of_associations)

    def retract_record(self, record: Sequence[Any]) -> None:
        """Take one appearance of a record away; the last one removes it.

        Raises
        ------
        StateError
            The record is not there, and state does not expire.
        """
        stored = self._find(record)
        if stored is not None and (not self._has_unique_key or tuple(record) == stored.record):
            self._replace(record, stored, stored.appear_times - 1, stored.num_associations)
        elif not self._ttl:
            raise StateError(f"{self._table.place(self._key_of(record))}: record {tuple(record)} is retracted but is not there")

    def update_num_of_associations(self, record: Sequence[Any], num_of_associations: int) -> None:
        """Set a record's number of associations; where state expires, a record that is gone is there again, once.

        Raises
        ------
        StateError
            The record is not there and state does not expire, or this form keeps no associations.
        """
        if not self._outer:
            raise StateError(f"{self._table.place(self._key_of(record))}: this state keeps no number of associations")
        stored = self._find(record)
        if stored is None and not self._ttl:
            raise StateError(
                f"{self._table.place(self._key_of(record))}: record {tuple(record)} has associations but is not there"
            )
        self._replace(record, stored, stored.appear_times if stored else 1, num_of_associations)

    def records(self, join_key: Sequence[Any]) -> Iterator[OuterRecord]:
        """The records of a join key, in key order."""
        columns = [part.column for part in self._schema.storage_key[: self._schema.prefix_length]]
        yield from self._read(dict(zip(columns, join_key, strict=True)))

    def _find(self, record: Sequence[Any]) -> OuterRecord | None:
        values = dict(zip(self._names, record, strict=True))
        found = self._read({part.column: values[part.column] for part in self._schema.storage_key})
        # Without a unique key the storage primary key is the record, but for columns that have no order.
        wanted = [r for r in found if self._has_unique_key or r.record == tuple(record)]
        return wanted[0] if wanted else None

    def _read(self, prefix: Mapping[str, Any]) -> list[OuterRecord]:
        rows = self._table.scan(prefix).collect()
        return [
            OuterRecord(tuple(row[name] for name in self._names), row[WEIGHT], row[NUM_ASSOCIATIONS] if self._outer else -1)
            for row in rows
        ]

    def _replace(self, record: Sequence[Any], stored: OuterRecord | None, times: int, associations: int) -> None:
        if stored is not None:
            self._table.add(self._row(stored.record, stored.num_associations), -stored.appear_times)
        if times:
            self._table.add(self._row(record, associations), times)

    def _row(self, record: Sequence[Any], associations: int) -> tuple[Any, ...]:
        return (*record, associations) if self._outer else tuple(record)

    def _key_of(self, record: Sequence[Any]) -> tuple[Any, ...]:
        values = dict(zip(self._names, record, strict=True))
        return tuple(values[part.column] for part in self._schema.storage_key)
