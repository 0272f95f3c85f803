"""State tables of an aggregate by role, and the frames that meet per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.operators.context import EpochContext
from relstate_dagster.jobs.operators.row_set import RowSet
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.aggregates.kind import AggregateKind, CallStrategy
from relstate_dagster.jobs.plan.aggregates.registry import kinds_of
from relstate_dagster.jobs.plan.nodes import Aggregate
from relstate_dagster.jobs.plan.state_tables import GROUP_ROWS, TableRole, accumulator_names, table_roles
from relstate_dagster.state_lib.constants import EPOCH, STATE_WEIGHT
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_table import StateTable


@dataclass(frozen=True, slots=True)
class ValueState:
    """A table of value state.

    Parameters
    ----------
    names : its columns, by the position of a call and the accumulator.
    """

    table: StateTable
    names: Mapping[int, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Tables:
    """The state tables of an aggregate by role.

    Parameters
    ----------
    kinds : of the calls.
    value_states : of all calls that have accumulators. The first also counts the rows of groups.
    counts : for extreme and distinct calls, how often each value occurs.
    input : the input rows, where a call is recomputed.
    """

    kinds: tuple[AggregateKind, ...]
    value_states: tuple[ValueState, ...]
    counts: Mapping[int, StateTable]
    input: StateTable | None

    def strategy(self, position: int) -> CallStrategy:
        """The strategy of the call at that position."""
        return self.kinds[position].strategy

    @property
    def kept(self) -> list[int]:
        """Positions of the calls that have accumulators."""
        return [position for state in self.value_states for position in state.names]

    @property
    def groups(self) -> StateTable:
        """The table that counts the rows of groups."""
        return self.value_states[0].table


@dataclass(frozen=True, slots=True)
class Affected:
    """Groups that an epoch changes: distinct keys, and lookup keys to skip by."""

    groups: DataFrame
    lookup_keys: LookupKeys | None
    hint: str | None

    @classmethod
    def by(cls, changed: RowSet, group: Sequence[str]) -> Affected:
        """The groups of a shared change set, which may have each more than once."""
        lookup_keys = changed.lookup_keys([(name, name) for name in group], null_safe=True)
        return cls(changed.frame.select(*columns_of(group)), lookup_keys, changed.hint)

    def stored(self, table: StateTable, group: Sequence[str], columns: Sequence[str]) -> DataFrame:
        """Unmerged rows of these groups in a state table, keyed by the group first.

        Returns
        -------
        ``columns``, ``_state_weight`` and ``_epoch``; all rows where there are no group columns.
        """
        if not group:
            return table.storage.runs(columns)
        on = [(name, name) for name in group]
        return table.storage.lookup(
            self.groups, on, null_safe=True, columns=columns, hint=self.hint, lookup_keys=self.lookup_keys
        )


def stored_groups(table: StateTable, change: RowSet, group: Sequence[str]) -> DataFrame:
    """Groups of a shared change set that a value state table has."""
    found = Affected.by(change, group).stored(table, group, group)
    newest = found.groupBy(*columns_of(group)).agg(F.max(F.struct(EPOCH, STATE_WEIGHT)).alias("_newest"))
    return newest.where(F.col(f"_newest.{STATE_WEIGHT}") > 0)


@dataclass(slots=True)
class GroupFrames:
    """Frames with the group columns and some measures each, brought together by one grouping."""

    group: tuple[str, ...]
    frames: list[DataFrame] = field(default_factory=list)
    measures: dict[str, str] = field(default_factory=dict)

    def add(self, frame: DataFrame, measures: Mapping[str, str]) -> None:
        """Add a frame with the aggregates (SQL) that pick its measures."""
        self.frames.append(frame)
        self.measures.update(measures)

    def together(self, *, single_partition: bool = False) -> DataFrame:
        """One row a group with all measures.

        In one task, which reads all frames, nothing is shuffled.

        A single frame is the grouped change of a backfill, which meets nothing.
        """
        if len(self.frames) == 1:
            return self.frames[0]
        stacked = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), self.frames)
        if single_partition:
            stacked = stacked.coalesce(1)
        aggregates = [F.expr(f"{sql} AS {name}") for name, sql in self.measures.items()]
        return stacked.groupBy(*columns_of(self.group)).agg(*aggregates)


def only(name: str) -> str:
    """The one value of a measure in a group.

    All other rows of the stack leave it NULL.
    """
    return f"first({name}, true)"


def tables_by_role(ctx: EpochContext, node: Aggregate) -> Tables:
    """The node's tables by role.

    Raises
    ------
    StateError : the node's tables are not those that its calls need.
    """
    tables, roles = ctx.tables[node], table_roles(node)
    if len(tables) != len(roles):
        raise StateError(
            f"epoch {ctx.epoch}: the aggregate by ({', '.join(node.group)}) has {len(tables)} state tables, its calls need "
            f"{len(roles)}; rebuild with --full-refresh"
        )
    found: dict[TableRole, dict[tuple[int, ...], StateTable]] = {role: {} for role in TableRole}
    for (role, positions), table in zip(roles, tables, strict=True):
        found[role][positions] = table
    states = [
        ValueState(table, accumulator_names(node, positions)) for positions, table in found[TableRole.VALUE_STATE].items()
    ]
    for state in states:
        _check_columns(state, node)
    counts = {position: table for (position,), table in found[TableRole.COUNTS].items()}
    return Tables(kinds_of(node), tuple(states), counts, found[TableRole.INPUT].get(()))


def _check_columns(state: ValueState, node: Aggregate) -> None:
    columns = [c.name for c in state.table.desc.schema.columns if c.name not in node.group and c.name != GROUP_ROWS]
    wanted = [name for names in state.names.values() for name in names.values()]
    if columns != wanted:
        raise StateError(
            f"{state.table.storage.place()} has the columns {', '.join(columns)}, its calls are kept in {', '.join(wanted)}; "
            "rebuild with --full-refresh"
        )


def group_exists(node: Aggregate, version: str) -> str:
    """Whether a group has rows in a version (``old`` or ``new``), as SQL.

    The one group of a global aggregate always has.
    """
    return f"_{version}{GROUP_ROWS} > 0" if node.group else f"_stored_{version}"


def same_group(group: Sequence[str], one: str, other: str) -> Column:
    """Whether rows of two aliased frames are of one group, NULLs included."""
    both = (F.col(f"{one}.{quoted(name)}").eqNullSafe(F.col(f"{other}.{quoted(name)}")) for name in group)
    return reduce(Column.__and__, both, F.lit(True))
