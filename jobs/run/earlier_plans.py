"""Views planned by another version of the planner, or on another Spark.

Their epochs may give other rows than their queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.plans import Planned
from relstate_dagster.jobs.catalog.protocol import conflicting_claims
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.strict import protected_over, refusal
from relstate_dagster.jobs.engine.spark_release import spark_release
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.plan.plan_version import PLAN_VERSION
from relstate_dagster.jobs.registration.planned_by import another_planner
from relstate_dagster.jobs.registration.view_planner import ViewPlanner, declaration_of
from relstate_dagster.jobs.run.run_context import RunContext
from relstate_dagster.state_lib.errors import RelstateError


def planned_by_this_version(
    run: RunContext, state: CatalogState, names: Sequence[str], full_refresh: Sequence[str] = ()
) -> tuple[CatalogState, list[str]]:
    """Plan views again that were planned by another version, or on another Spark.

    Parameters
    ----------
    full_refresh : views that the user names: these may be rebuilt though their policy is strict.

    Returns
    -------
    The state in which views with an unchanged plan have it stored in the current format, and the views to rebuild, whose plan
    is another now. Views that cannot be planned (a source cannot be read, or the query is now refused) are in
    ``run.unplannable``: they stay unchanged, and the next run tries again. So are those whose rebuild a strict view refuses.
    """
    built = [state.views[name] for name in names if name not in state.rebuilds and state.views[name].last_epoch is not None]
    earlier = [view for view in built if another_planner(view) is not None]
    if not earlier:
        return state, []
    same: dict[str, tuple[ViewEntry, Planned]] = {}
    others: list[str] = []
    for view in earlier:
        try:
            planned = _planned_the_same(run, state, view)
        except RelstateError as error:
            run.unplannable[view.name] = error
        else:
            if planned is not None:
                same[view.name] = view, planned
            elif strict := protected_over(state, [view.name], full_refresh):
                why = f"{another_planner(view)} has planned {view.name}, and its plan is another one now"
                run.unplannable[view.name] = refusal(strict[0], why)
            else:
                others.append(view.name)

    def updated(newest: CatalogState) -> CatalogState:
        for name, (view, planned) in same.items():
            now = newest.views.get(name)
            # What another run has in hand it writes as it knows it: the next run looks again.
            if now is not None and now.planned == view.planned and not conflicting_claims(newest, run.claims.id, [name]):
                by_this = replace(now, plan_version=PLAN_VERSION, planned_on_spark=spark_release(), planned=planned)
                newest = newest.with_view(by_this)
        return newest

    return run.warehouse.catalog.update(updated), others


def _planned_the_same(run: RunContext, state: CatalogState, view: ViewEntry) -> Planned | None:
    """The view's state with the plan of this version; ``None`` if that is another plan."""
    run.interrupted()
    run.tell(f"{view.name}: planned by {another_planner(view)}, looking whether it is planned as before")
    with run.runs.pool.lend(view, Workload.FULL) as session:
        now = ViewPlanner(session, run.warehouse).plan(state.working, declaration_of(view))
    if (now.plan, [t.schema for t in now.tables]) != (view.plan, [t.schema for t in view.tables]):
        return None
    return Planned.of(view.planned.stateful.planned_again(now.plan))
