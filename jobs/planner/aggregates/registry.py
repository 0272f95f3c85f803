"""All aggregate kinds, and the choice of one for each call."""

from __future__ import annotations

from typing import Final

from relstate_dagster.jobs.planner.aggregates import append_only_extreme, extreme
from relstate_dagster.jobs.planner.aggregates.average import Average
from relstate_dagster.jobs.planner.aggregates.count import Count
from relstate_dagster.jobs.planner.aggregates.distinct import Distinct
from relstate_dagster.jobs.planner.aggregates.kind import AggregateKind
from relstate_dagster.jobs.planner.aggregates.materialized import MATERIALIZED
from relstate_dagster.jobs.planner.aggregates.sums import Sum
from relstate_dagster.jobs.planner.nodes import AggCall, Aggregate

_ADDED: Final = (Count(), Sum(), Average())

#: Of the kinds of a function the first one that takes a call keeps it; calls that none takes are materialized.
KINDS: Final[tuple[AggregateKind, ...]] = (
    *_ADDED,
    *(Distinct(kind) for kind in _ADDED),
    *extreme.KINDS,
    *append_only_extreme.KINDS,
    MATERIALIZED,
)

_BY_FUNCTION: Final = {kind.function: [k for k in KINDS if k.function == kind.function] for kind in KINDS}


def choose_kind(call: AggCall, *, append_only: bool) -> AggregateKind:
    """The kind of a call over an input that is append-only or not."""
    kinds = _BY_FUNCTION.get(call.function, ())
    return next((kind for kind in kinds if kind.takes(call, append_only=append_only)), MATERIALIZED)


def kinds_of(node: Aggregate) -> tuple[AggregateKind, ...]:
    """The kinds of an aggregate's calls."""
    return tuple(choose_kind(call, append_only=node.child.append_only) for call in node.calls)


def leaves_out_nulls(function: str) -> bool:
    """Whether a function is known to leave out rows with a NULL among its arguments."""
    return function in _BY_FUNCTION


def only_counts(function: str) -> bool:
    """Whether a function reads nothing of an argument but whether it is NULL."""
    return any(not kind.reads_values for kind in _BY_FUNCTION.get(function, ()))
