"""Jobs over views: refresh, and comparison with full queries."""

from __future__ import annotations

from typing import Final

from dagster import AssetSelection, ExecutorDefinition, define_asset_job, in_process_executor
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from relstate_dagster.assets.specs import ProjectAssets
from relstate_dagster.jobs.declare.checks import MATCHES_FULL_RECOMPUTE, STREAM_KEY_UNIQUE

REFRESH_JOB: Final = "refresh_views"
VERIFY_JOB: Final = "verify_views"


def refresh_job(
    assets: ProjectAssets, name: str = REFRESH_JOB, executor: ExecutorDefinition | None = None
) -> UnresolvedAssetJobDefinition:
    """Job of schedule and sensor: every view, and its checks but full recomputes."""
    views = AssetSelection.assets(*assets.view_keys()).without_checks()
    return define_asset_job(
        name,
        selection=views | AssetSelection.checks(*assets.check_keys(STREAM_KEY_UNIQUE), *assets.declared_checks),
        description="One epoch over all views: reads what changed in the sources and applies it.",
        executor_def=executor or in_process_executor,
    )


def verify_job(
    assets: ProjectAssets, name: str = VERIFY_JOB, executor: ExecutorDefinition | None = None
) -> UnresolvedAssetJobDefinition:
    """Return the job that runs every query in full and compares; it materializes nothing."""
    return define_asset_job(
        name,
        selection=AssetSelection.checks(*assets.check_keys(MATCHES_FULL_RECOMPUTE)),
        description="Compares every view with its query run in full, both ways.",
        executor_def=executor or in_process_executor,
    )
