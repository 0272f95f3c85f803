"""Sensor of new commits in sources, by their logs, without a JVM."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from dagster import (
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from relstate_dagster.assets.views import WAREHOUSE_KEY
from relstate_dagster.jobs.declare import Project
from relstate_dagster.resources import WarehouseResource

SENSOR: Final = "delta_versions"
MINIMUM_INTERVAL_SECONDS = 30
#: A run that did not bring the views up to date is not asked for again at once, while nothing else has happened.
RETRY_SECONDS = 600
#: The run tag that names the state of sources and views for which a run was asked.
STATE_TAG = "relstate/state"
_UNDER_WAY = (
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
)


def delta_versions_sensor(
    project: Project, job: UnresolvedAssetJobDefinition, *, name: str = SENSOR, resource_key: str = WAREHOUSE_KEY
) -> SensorDefinition:
    """Return a sensor that asks for a run when a view is behind its sources.

    It keeps no cursor: whether a view is behind follows from what is published, so a run that failed or was cancelled is asked
    for again. While a run of the job is under way it waits.
    """

    def behind(context: SensorEvaluationContext) -> Mapping[str, str]:
        return _views_behind(project, getattr(context.resources, resource_key))

    return behind_sensor(behind, job, name=name, resource_keys={resource_key})


def behind_sensor(
    behind: Callable[[SensorEvaluationContext], Mapping[str, str]],
    job: UnresolvedAssetJobDefinition,
    *,
    name: str = SENSOR,
    resource_keys: Collection[str] = (),
) -> SensorDefinition:
    """As :func:`delta_versions_sensor`; ``behind`` gives the views that are behind, each with the reason."""

    @sensor(
        name=name,
        job=job,
        minimum_interval_seconds=MINIMUM_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.STOPPED,
        description="Runs an epoch when a view is behind the Delta versions of its sources.",
        required_resource_keys=set(resource_keys),
    )
    def delta_versions(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        under_way = context.instance.get_runs(RunsFilter(job_name=job.name, statuses=list(_UNDER_WAY)), limit=1)
        if under_way:
            return SkipReason(f"run {under_way[0].run_id} is under way")
        found = dict(behind(context))
        if not found:
            return SkipReason("every view is up to date with its sources")
        state = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
        tries = context.instance.get_run_records(RunsFilter(job_name=job.name, tags={STATE_TAG: state}))
        ended = max((record.end_time or record.create_timestamp.timestamp() for record in tries), default=0.0)
        wait = ended + RETRY_SECONDS - time.time()
        if wait > 0:
            return SkipReason(
                f"{_listed(list(found))} behind, and the last run for that ended without bringing them up to date "
                f"({tries[0].dagster_run.status.value.lower()}); another one is started in {wait:.0f} s"
            )
        tags = {STATE_TAG: state, "relstate/behind": ",".join(sorted(found))[:255]}
        return SensorResult(run_requests=[RunRequest(run_key=f"{state}-{len(tries)}", tags=tags)])

    return delta_versions


def _views_behind(project: Project, warehouse: WarehouseResource) -> Mapping[str, str]:
    from relstate_dagster.jobs.run.freshness import views_behind  # noqa: PLC0415 - imports PySpark

    return views_behind(warehouse.opened(), [view.name for view in project.views])


def _listed(names: Sequence[str]) -> str:
    return (
        f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''} {'is' if len(names) == 1 else 'are'}"
    )
