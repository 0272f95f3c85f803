"""A sensor on the versions of the sources' Delta tables, read by delta-rs: no JVM runs while nothing happens."""

from __future__ import annotations

import json
from collections.abc import Mapping

from dagster import (
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from state_lib.lake.table import DeltaTable, TableNotFoundError

MINIMUM_INTERVAL_SECONDS = 30


def delta_versions_sensor(paths: Mapping[str, str], job: UnresolvedAssetJobDefinition) -> SensorDefinition:
    """Return a sensor that asks for a run when any source has a new version.

    Its cursor is the map of versions, as JSON, that it last asked a run for. The run key is made of the same map, so
    that two evaluations of one state ask for one run.

    Parameters
    ----------
    paths
        Source → path of its Delta table.
    job
        What to run.
    """

    @sensor(
        name="delta_versions",
        job=job,
        minimum_interval_seconds=MINIMUM_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.STOPPED,
        description="Runs an epoch when a source has a new Delta version.",
    )
    def delta_versions(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        versions = read_versions(paths)
        absent = sorted(set(paths) - set(versions))
        if absent:
            return SkipReason(f"not there yet: {', '.join(absent)}")
        before: dict[str, int] = json.loads(context.cursor) if context.cursor else {}
        moved = sorted(name for name, version in versions.items() if before.get(name) != version)
        if not moved:
            return SkipReason("no source has a new version")
        return SensorResult(
            run_requests=[RunRequest(run_key=run_key(versions), tags={"relstate/sources": ",".join(moved)[:255]})],
            cursor=json.dumps(versions, sort_keys=True),
        )

    return delta_versions


def read_versions(paths: Mapping[str, str]) -> dict[str, int]:
    """Return the newest version of each Delta table that is there."""
    found = {name: _version(path) for name, path in paths.items()}
    return {name: version for name, version in found.items() if version is not None}


def run_key(versions: Mapping[str, int]) -> str:
    """Return a run key that is the same for the same versions."""
    return ",".join(f"{name}={version}" for name, version in sorted(versions.items()))


def _version(path: str) -> int | None:
    try:
        return DeltaTable(path).version()
    except TableNotFoundError:
        return None
