"""All aggregate kinds, and the choice of one for each call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from relstate_dagster.jobs.plan.aggregates import append_only_extreme, bits, extreme, float_sums
from relstate_dagster.jobs.plan.aggregates.average import Average
from relstate_dagster.jobs.plan.aggregates.count import Count
from relstate_dagster.jobs.plan.aggregates.distinct import Distinct
from relstate_dagster.jobs.plan.aggregates.kind import AggregateKind
from relstate_dagster.jobs.plan.aggregates.materialized import MATERIALIZED
from relstate_dagster.jobs.plan.aggregates.sums import Sum
from relstate_dagster.jobs.plan.nodes import AggCall, Aggregate, PlanNode
from relstate_dagster.state_lib.errors import PlanError

#: Kinds of plans of before version 3, which name none.
_EARLIER: Final[tuple[AggregateKind, ...]] = (
    *(_ADDED := (Count(), Sum(), Average())),
    *(Distinct(kind) for kind in _ADDED),
    *extreme.EARLIER,
    *append_only_extreme.KINDS,
    MATERIALIZED,
)
#: Of the kinds of a function the first one that takes a call keeps it; calls that none takes are materialized.
KINDS: Final[tuple[AggregateKind, ...]] = (*extreme.KINDS, *_EARLIER, *bits.KINDS, *float_sums.KINDS)

_BY_NAME: Final = {kind.name: kind for kind in KINDS}
_BY_FUNCTION: Final = {kind.function: [k for k in KINDS if k.function == kind.function] for kind in KINDS}


def choose_kind(call: AggCall, *, append_only: bool, among: Sequence[AggregateKind] = KINDS) -> AggregateKind:
    """The kind of a call over an input that is append-only or not."""
    kinds = (kind for kind in _BY_FUNCTION.get(call.function, ()) if kind in among)
    return next((kind for kind in kinds if kind.takes(call, append_only=append_only)), MATERIALIZED)


def with_kinds(node: Aggregate, among: Sequence[AggregateKind] = KINDS) -> Aggregate:
    """The aggregate with the kind of each call chosen for its input."""
    kinds = [choose_kind(call, append_only=node.child.append_only, among=among) for call in node.calls]
    if MATERIALIZED in kinds:
        kinds = [MATERIALIZED if kind.spares_rows else kind for kind in kinds]
    return replace(node, calls=tuple(replace(call, kind=kind.name) for call, kind in zip(node.calls, kinds, strict=True)))


def with_rows_of_groups(node: PlanNode) -> PlanNode:
    """A plan that keeps the rows of groups where a kind would only spare them."""
    changes: dict[str, Any] = {}
    for field in (field for field in fields(node) if field.init):
        value = getattr(node, field.name)
        if isinstance(value, PlanNode):
            changes[field.name] = with_rows_of_groups(value)
        elif isinstance(value, tuple) and any(isinstance(part, PlanNode) for part in value):
            changes[field.name] = tuple(map(with_rows_of_groups, value))
    if isinstance(node, Aggregate) and any(kind.spares_rows for kind in kinds_of(node)):
        kinds = (MATERIALIZED if kind.spares_rows else kind for kind in kinds_of(node))
        changes["calls"] = tuple(replace(call, kind=kind.name) for call, kind in zip(node.calls, kinds, strict=True))
    return replace(node, **changes) if changes else node


def with_stored_kinds(node: Aggregate) -> Aggregate:
    """An aggregate of a stored plan with a known kind for each call.

    Calls of earlier plans, which name no kind, get the one that they had: their state is kept so.

    Raises
    ------
    PlanError : it names a kind that this version does not know.
    """
    if node.calls and not any(call.kind for call in node.calls):
        return with_kinds(node, _EARLIER)
    kinds_of(node)
    return node


def kinds_of(node: Aggregate) -> tuple[AggregateKind, ...]:
    """The kinds of an aggregate's calls, as the plan names them.

    Raises
    ------
    PlanError : there is none of that name.
    """
    for call in node.calls:
        if call.kind not in _BY_NAME:
            raise PlanError(
                f"the call {call.label} of a plan is of the unknown aggregate kind {call.kind!r}; upgrade relstate-dagster"
            )
    return tuple(_BY_NAME[call.kind] for call in node.calls)


def leaves_out_nulls(function: str) -> bool:
    """Whether a function is known to leave out rows with a NULL among its arguments."""
    return function in _BY_FUNCTION


def only_counts(function: str) -> bool:
    """Whether a function reads nothing of an argument but whether it is NULL."""
    return any(not kind.reads_values for kind in _BY_FUNCTION.get(function, ()))
