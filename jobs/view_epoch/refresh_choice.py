"""Choice of the views that an epoch may recompute, and their costs.

Whether it does is decided by the plan of the epoch (:mod:`.jobs.view_epoch.plan`). A view that has been computed so keeps no
state: its next epochs compute all rows as well, until changes are small again. Then one of them fills the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from relstate_dagster.jobs.catalog.costs import Costs, EpochCost
from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.plan.new_state import Recompute
from relstate_dagster.jobs.plan.nodes import Aggregate, FullQuery, Materialize, Scan, depends_on_time, walk
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.jobs.view_epoch.plan import ViewSizes
from relstate_dagster.jobs.view_epoch.steps import ViewEpochPlan
from relstate_dagster.state_lib.constants import ROW_ID


def may_recompute(view: ViewEntry, sources: Collection[str]) -> bool:
    """Whether an epoch may compute all rows of a view.

    It is built, its policy is ``auto``, and its rows follow from those that it reads.

    They do not where state expires, where watermarks close groups, or where the newest row of a key counts. Nor do they where
    rows have ids that a source gave them as they came in. Rows that change by time alone are followed always.
    """
    if view.strategy != "incremental" or view.refresh_policy != "auto" or view.last_epoch is None:
        return False
    if view.state_ttl is not None or view.expiry.until is not None or view.watermarks:
        return False
    if not view.plan.is_of_a_day and (view.problem is not None or not nodes_with_state(view)):
        return False
    return follows_from_rows(view.plan, sources)


def follows_from_rows(plan: Materialize, sources: Collection[str]) -> bool:
    """Whether Spark can compute a view's rows from those that it reads, and the date."""
    nodes = list(walk(plan))
    if depends_on_time(plan) or any(isinstance(node, FullQuery) for node in nodes):
        return False
    if any(isinstance(node, Aggregate) and node.is_of_changelog for node in nodes):
        return False
    read = used_columns(plan)
    return not any(ROW_ID in read[node.relation] and node.relation in sources for node in nodes if isinstance(node, Scan))


def nodes_with_state(view: ViewEntry) -> tuple[int, ...]:
    """Ids of the nodes that have state tables, without the view itself."""
    return tuple(planned.id for planned in view.planned.stateful.nodes[:-1] if planned.tables)


def costs_after(view: ViewEntry, sizes: ViewSizes, plan: ViewEpochPlan, seconds: Mapping[str, float]) -> Costs:
    """Costs of a view after it was computed in an epoch.

    Parameters
    ----------
    seconds : of the epoch, by stage.
    """
    spent, compute = round(sum(seconds.values()), 3), plan.compute
    if compute.recomputes is Recompute.WITH_STATE:
        return view.costs
    if compute.recomputes is Recompute.WITHOUT_STATE:
        return view.costs.used(sizes.changed_bytes).after(EpochCost(plan.changed_bytes, spent), full=True)
    return view.costs.after(EpochCost(sizes.changed_bytes, spent), full=sizes.is_backfill)
