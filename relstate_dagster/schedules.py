"""A schedule, for sources whose versions are not to be watched."""

from __future__ import annotations

from dagster import DefaultScheduleStatus, ScheduleDefinition
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def quarter_hourly(job: UnresolvedAssetJobDefinition) -> ScheduleDefinition:
    """Return a schedule that runs an epoch every 15 minutes; it is off until someone turns it on."""
    return ScheduleDefinition(
        name="every_quarter_hour",
        job=job,
        cron_schedule="*/15 * * * *",
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.STOPPED,
    )
