"""Whether a run is too short for its JVM to optimize code.

By logs alone, before Spark starts.
"""

from __future__ import annotations

from collections.abc import Collection

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import Project
from relstate_dagster.jobs.run.outlook import outlook
from relstate_dagster.state_lib.errors import RelstateError
from relstate_dagster.state_lib.lake.table import DeltaError
from relstate_dagster.state_lib.tuning import tuning


def is_little_work(warehouse: Warehouse, project: Project, views: Collection[str], full_refresh: Collection[str] = ()) -> bool:
    """Whether some views read little in their next epoch.

    Unknown sizes are not little.

    How much of other tables a small change meets is not known before: then the run takes up to half as long again.

    Parameters
    ----------
    full_refresh : views that are rebuilt from all of their sources.
    """
    if full_refresh or not 0 < len(views) <= tuning().brief_run_views:
        return False
    try:
        # How many tasks a shuffle has does not matter for what is read.
        looked_at = outlook(warehouse, project, most_tasks=1, views=views)
    except (RelstateError, DeltaError, OSError):
        return False  # the run says what is wrong, and of which view
    read = [one.bytes for one in looked_at if one.view in views]
    return None not in read and sum(size or 0 for size in read) <= tuning().brief_run_bytes
