"""Which planner has made a view's stored plan: this one, another version of it, or the same on another Spark."""

from __future__ import annotations

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.engine.spark_release import spark_release
from relstate_dagster.jobs.plan.plan_version import PLAN_VERSION


def another_planner(view: ViewEntry) -> str | None:
    """What has planned a view, in words; ``None`` for this version on the installed Spark.

    Another Spark may read the same query in another way, and then gives another plan.
    """
    if view.plan_version != PLAN_VERSION:
        return "another version of relstate"
    return None if view.planned_on_spark == spark_release() else f"Spark {view.planned_on_spark}"
