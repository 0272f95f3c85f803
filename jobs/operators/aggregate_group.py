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
from relstate_dagster.jobs.plan.state_tables import GROUP_ROWS, TableRole, table_roles
from relstate_dagster.state_lib.constants import EPOCH, STATE_WEIGHT
from relstate_dagster.state_lib.errors import StateError
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.state_table import StateTable


@dataclass(frozen=True, slots=True)
class Tables:
    """The state tables of an aggregate by role.

    Parameters
    ----------
    kinds : of the calls.
    by_call : the value state of each call that has one.
    counts : for extreme and distinct calls, how often each value occurs.
    group_rows : counts the rows of groups where no call has value state.
    input : the input rows, where a call is recomputed.
    """

    kinds: tuple[AggregateKind, ...]
    by_call: Mapping[int, StateTable]
    counts: Mapping[int, StateTable]
    group_rows: StateTable | None
    input: StateTable | None

    def strategy(self, position: int) -> CallStrategy:
        """The strategy of the call at that position."""
        return self.kinds[position].strategy

    @property
    def value_tables(self) -> dict[int, StateTable]:
        """Value state tables by call position; -1 only counts the rows of groups."""
        return {-1: self.group_rows} if self.group_rows is not None else dict(self.by_call)


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
    found: dict[TableRole, dict[int, StateTable]] = {role: {} for role in TableRole}
    for (role, position), table in zip(roles, tables, strict=True):
        found[role][position] = table
    kinds = kinds_of(node)
    for position, table in found[TableRole.ACCUMULATORS].items():
        _check_columns(table, node, [a.column for a in kinds[position].accumulators(node.calls[position])])
    return Tables(
        kinds,
        found[TableRole.ACCUMULATORS],
        found[TableRole.COUNTS],
        found[TableRole.GROUP_ROWS].get(-1),
        found[TableRole.INPUT].get(-1),
    )


def _check_columns(table: StateTable, node: Aggregate, accumulators: Sequence[str]) -> None:
    columns = [c.name for c in table.desc.schema.columns if c.name not in node.group and c.name != GROUP_ROWS]
    if columns != list(accumulators):
        raise StateError(
            f"{table.storage.place()} has the columns {', '.join(columns)}, its call is kept in {', '.join(accumulators)}; "
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
