"""Views that another planner has planned: another version of it, or on another Spark."""

from __future__ import annotations

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.engine.spark_release import spark_release
from relstate_dagster.jobs.plan.plan_version import PLAN_VERSION


def another_planner(view: ViewEntry) -> str | None:
    """Name the planner of a view's plan, if it is another one.

    ``None`` for a plan of this version on the installed Spark.

    Another Spark may read the same query in another way, and then gives another plan.
    """
    if view.plan_version != PLAN_VERSION:
        return "another version of relstate"
    return None if view.planned_on_spark == spark_release() else f"Spark {view.planned_on_spark}"
