"""Schema of a state table: columns, storage primary key, and merge rule.

These are facts only; no Spark object lives here, so that plans can hold, compare, hash and store them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from relstate_dagster.state_lib.errors import PlanError


class StateKind(str, enum.Enum):
    """Kind of a state table (terms of RisingWave and Flink)."""

    VALUE_STATE = "value state"
    EXTREME_STATE = "extreme state"
    DISTINCT_STATE = "distinct state"
    MATERIALIZED_INPUT = "materialized input"
    JOIN_KEY_CONTAINS_UNIQUE_KEY = "JoinKeyContainsUniqueKey"
    INPUT_SIDE_HAS_UNIQUE_KEY = "InputSideHasUniqueKey"
    INPUT_SIDE_HAS_NO_UNIQUE_KEY = "InputSideHasNoUniqueKey"
    MATERIALIZED_VIEW = "materialized view"


class MergeRule(str, enum.Enum):
    """Rule that merges rows of several epochs under one key on read.

    ``NEWEST``: the row of the newest epoch wins; a weight of -1 is a tombstone. Value states.

    ``SUM``: the weights of equal rows add up, and a row whose sum is 0 is gone; a row of negative
    weight is the tombstone of the row it carries. A linear reader (the join) may then multiply
    unmerged runs directly: the sum distributes over the join, so no lookup pays for merging.
    """

    NEWEST = "newest epoch wins"
    SUM = "weights add up"


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A column of a state table: name and DDL type (``decimal(15,2)``)."""

    name: str
    data_type: str


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of a storage primary key, with its order (Spark's default: ascending, NULLs first)."""

    column: str
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class StateTableSchema:
    """Facts of one state table, before it has a table id.

    As ``infer_state_tables()`` gives them.

    Parameters
    ----------
    label : what the operator calls the table, e.g. ``left``, ``right``, ``sum(v2)``, ``mv``.
    kind : what the table holds.
    columns : all columns of a row, key columns included.
    storage_key : the storage primary key, in order.
    prefix_length : how many leading key columns a lookup names (join key, group key).
    distribution_key : the columns whose encoding is hashed to a vnode; empty for a singleton.
    merge : how runs merge on read.
    """

    label: str
    kind: StateKind
    columns: tuple[StateColumn, ...]
    storage_key: tuple[KeyPart, ...]
    prefix_length: int
    distribution_key: tuple[str, ...]
    merge: MergeRule

    def __post_init__(self) -> None:
        names = {column.name for column in self.columns}
        if len(names) != len(self.columns):
            raise PlanError(f"state table {self.label}: two columns share a name in {[c.name for c in self.columns]}")
        missing = [p.column for p in self.storage_key if p.column not in names]
        missing += [name for name in self.distribution_key if name not in names]
        if missing:
            raise PlanError(f"state table {self.label}: key columns {missing} are not among its columns")
        if not 0 <= self.prefix_length <= len(self.storage_key):
            raise PlanError(f"state table {self.label}: prefix length {self.prefix_length} exceeds its key")

    def column_type(self, name: str) -> str:
        """The DDL type of a column."""
        return next(column.data_type for column in self.columns if column.name == name)


@dataclass(frozen=True, slots=True)
class StateTableDesc:
    """A state table with its identity.

    Parameters
    ----------
    table_id : globally unique.
    vnode_count : a power of two, at most 1024; rows are written to the vnode that it gives.
    first_vnode_count : what it was when the table was empty. Rows may still lie where any count from this one up to
        ``vnode_count`` put them.
    """

    table_id: int
    schema: StateTableSchema
    vnode_count: int = 1
    first_vnode_count: int = 1
