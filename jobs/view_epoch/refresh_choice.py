"""Choice of ``auto``: recompute a view if past epochs show that to be cheaper.

A view that is recomputed is rebuilt in the epoch, state and all, as a full refresh would: the epochs after it are
incremental again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from relstate_dagster.jobs.catalog.costs import Costs, EpochCost
from relstate_dagster.jobs.catalog.entries import EpochEntry, ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs
from relstate_dagster.jobs.view_epoch.plan import ViewSizes


def choose_refresh(
    state: CatalogState, epoch: EpochEntry, names: Sequence[str], inputs_of: Callable[[ViewEntry], EpochInputs]
) -> tuple[CatalogState, EpochEntry]:
    """Have views built again where that makes an epoch cheaper.

    Parameters
    ----------
    epoch : the epoch that is about to begin.
    names : views that may change in it.
    inputs_of : a view's inputs in the epoch. Nothing is read but the log of its sources.
    """
    for name in names:
        view = state.working.views[name]
        if not view.costs.changes or not may_choose(state, view):
            continue
        inputs = inputs_of(view)
        changed_bytes = sum(read.bytes for read in inputs.planned_reads())
        reason = view.costs.cheaper_in_full(changed_bytes, inputs.total_bytes())
        if reason is not None:
            known = replace(view, costs=view.costs.used(changed_bytes))
            state = state.with_rebuild(known.restarted())
            epoch = replace(epoch, recomputed={**epoch.recomputed, name: reason})
    return state, epoch


def costs_after(view: ViewEntry, state: CatalogState, sizes: ViewSizes, seconds: Mapping[str, float]) -> Costs:
    """Costs of a view after it was computed in an epoch.

    Parameters
    ----------
    seconds : of the epoch, by stage.
    """
    if not _reads_sources_alone(state, view):
        return view.costs
    cost = EpochCost(sizes.changed_bytes, round(sum(seconds.values()), 3))
    return view.costs.after(cost, full=sizes.is_backfill)


def may_choose(state: CatalogState, view: ViewEntry) -> bool:
    """Whether ``auto`` may choose to recompute a view.

    No view over it has to be rebuilt then. One whose state expires would get back lost rows.

    A view whose state expires is not chosen: rebuilt, it would have what it had lost.
    """
    chosen = view.strategy == "incremental" and view.refresh_policy == "auto"
    alone = not state.dependents(view.name) and _reads_sources_alone(state, view)
    return chosen and alone and view.last_epoch is not None and view.state_ttl is None


def _reads_sources_alone(state: CatalogState, view: ViewEntry) -> bool:
    """Whether a view reads sources only.

    How much changes in other views is known only once they are done.
    """
    return all(name in state.sources for name in view.reads)
