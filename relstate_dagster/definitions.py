"""The code location: a project's views and sources, wired to a warehouse. Loading it reads SQL files and no table."""

from __future__ import annotations

from dagster import Definitions, in_process_executor

from relstate_dagster.assets.specs import source_specs
from relstate_dagster.assets.views import build_views_asset
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.maintenance import maintenance_job
from relstate_dagster.refresh_jobs import refresh_job, verify_job
from relstate_dagster.resources import SparkResource, WarehouseResource
from relstate_dagster.schedules import quarter_hourly, weekly
from relstate_dagster.sensors import delta_versions_sensor
from relstate_dagster.settings import Location


def build_definitions(location: Location) -> Definitions:
    """Return everything Dagster shows of one project."""
    project = load_project(location.project)
    warehouse = WarehouseResource(path=location.warehouse, spark=SparkResource(), functions=location.functions or "")
    refresh, maintenance = refresh_job(project), maintenance_job(project)
    return Definitions(
        assets=[build_views_asset(project), *source_specs(project)],
        jobs=[refresh, verify_job(project), maintenance],
        sensors=[delta_versions_sensor(project, warehouse, refresh)],
        schedules=[quarter_hourly(refresh), weekly(maintenance)],
        resources={"warehouse": warehouse},
        # All views are one step: a process of its own for that step would only start Dagster twice.
        executor=in_process_executor,
    )


defs = build_definitions(Location.from_environment())
