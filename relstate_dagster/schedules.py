"""Schedules: of epochs, for sources whose versions are not to be watched, and of maintenance."""

from __future__ import annotations

from dagster import DefaultScheduleStatus, JobDefinition, ScheduleDefinition
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


def weekly(job: JobDefinition) -> ScheduleDefinition:
    """Return a schedule that maintains state on Sunday nights; it is off until someone turns it on."""
    return ScheduleDefinition(
        name="every_sunday_night",
        job=job,
        cron_schedule="0 3 * * 0",
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.STOPPED,
    )
