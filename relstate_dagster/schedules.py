"""Schedules: of epochs, for sources whose versions are not to be watched, and of maintenance."""

from __future__ import annotations

from typing import Final

from dagster import DefaultScheduleStatus, JobDefinition, ScheduleDefinition
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

QUARTER_HOURLY: Final = "every_quarter_hour"
WEEKLY: Final = "every_sunday_night"


def quarter_hourly(job: UnresolvedAssetJobDefinition, name: str = QUARTER_HOURLY) -> ScheduleDefinition:
    """Schedule of an epoch every 15 minutes, off until someone turns it on."""
    return _stopped(name, "*/15 * * * *", job)


def weekly(job: JobDefinition, name: str = WEEKLY) -> ScheduleDefinition:
    """Schedule of maintenance on Sunday nights, off until someone turns it on."""
    return _stopped(name, "0 3 * * 0", job)


def _stopped(name: str, cron_schedule: str, job: JobDefinition | UnresolvedAssetJobDefinition) -> ScheduleDefinition:
    return ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=cron_schedule,
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.STOPPED,
    )
