"""The contract of an aggregate kind.

The planner, the operators and explain ask a kind for all that they do with a call. To add a kind, add a file here and a line in
:mod:`.jobs.plan.aggregates.registry`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from relstate_dagster.jobs.plan.nodes import AggCall
from relstate_dagster.state_lib.table_schema import StateKind


class CallStrategy(enum.Enum):
    """The operator of a call: its name in explain, and its added cost."""

    VALUE = ("value state", "")
    EXTREME = ("extreme state", "the values of a group when the first ones run out")
    DISTINCT = ("distinct state", "|changed values|")
    MATERIALIZED_INPUT = ("materialized input", "the rows of affected groups")

    def __init__(self, label: str, cost: str) -> None:
        self.label: Final = label
        self.cost: Final = cost


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A column of a call's value state, and how changes of the group change it.

    Parameters
    ----------
    column, data_type : its name in the state table, which other kinds may share, and its DDL type.
    change : an aggregate (SQL) over weighted rows: what they change it by. It reads the call's arguments and ``_weight``; a
        deletion has a negative weight. Empty where the operator of the strategy computes the column.
    initial : its value (SQL) in a group without state; empty for NULL.
    new : its new value (SQL) out of the old one and the change, which is NULL where no row has changed it.
    at_least_zero : its value (SQL) with negative counts set to 0, for state that may expire; ``None`` without counts.
    """

    column: str
    data_type: str
    change: str = ""
    initial: str = ""
    new: Callable[[str, str], str] | None = None
    at_least_zero: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class CountedValues:
    """A call's second state table: counts of values in each group, sorted by value.

    ``only_of_others``: a group has counts once it has more values than its value state keeps.
    """

    state: StateKind
    descending: bool = False
    only_of_others: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """Names of a call's columns in one version: ``old``, ``new``, or ``d`` for the change."""

    version: str
    position: int

    def __getitem__(self, column: str) -> str:
        """The name of a column."""
        return f"_{self.version}{column}_{self.position}"


class AggregateKind(Protocol):
    """Maintenance of the calls of one function, or of some of them.

    The function leaves out rows with a NULL among its arguments. Every other function is of the materialized kind.

    A kind has one table of value state with its accumulators, unless its strategy is materialized input; with ``counted``, it
    has a table of counts besides. The operators add to each group the columns ``_old…``, ``_d…`` and ``_new…`` of each
    accumulator. The result is made of them: from the old ones the row that the view shows, from the new ones its next row.

    Attributes
    ----------
    name : stored in plans with each call; never changed.
    function : the function's name in :class:`.jobs.plan.nodes.AggCall`.
    strategy : which operator feeds the accumulators.
    counted : the table of counts, if it has one.
    reads_values : whether calls read more of an argument than whether it is NULL; those that do not are never NULL.
    spares_rows : whether it is for nothing else but to spare the rows of the group. Where another call needs these, its calls
        are materialized too.
    description : the row of the kind in the documentation: call, change, result.
    """

    name: str
    function: str
    strategy: CallStrategy
    counted: CountedValues | None = None
    reads_values: bool = True
    spares_rows: bool = False
    description: tuple[str, str, str]

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Whether it keeps a call of its function over an append-only input, or another."""

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The columns of its value state, in the order in which they are stored."""

    def derived(self, _call: AggCall, _at: Version) -> Mapping[str, str]:
        """SQL by name of columns that the result reads, computed from a version's accumulators."""
        return {}

    def result(self, call: AggCall, at: Version) -> str:
        """The call's value (SQL) in a version, of the type that Spark gives the call."""


def added(column: str, data_type: str, change: str) -> Accumulator:
    """An accumulator that starts at 0 and that changes are added to."""
    zero = f"CAST(0 AS {data_type})"
    return Accumulator(
        column, data_type, change, zero, lambda old, changed: f"CAST({old} + coalesce({changed}, {zero}) AS {data_type})"
    )


def value_column(position: int) -> str:
    """The column of a table of counts that holds an argument of its call."""
    return f"_value_{position}"
