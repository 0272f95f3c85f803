"""The jobs over views: bring them up to date, and prove them equal to their queries run in full."""

from __future__ import annotations

from dagster import AssetCheckKey, AssetKey, AssetSelection, define_asset_job
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from relstate_dagster.assets.specs import MATCHES_FULL_RECOMPUTE, STREAM_KEY_UNIQUE
from relstate_dagster.jobs.declare import Project


def refresh_job(project: Project) -> UnresolvedAssetJobDefinition:
    """Return the job of schedule and sensor: every view, and the cheap one of its checks."""
    return define_asset_job(
        "refresh_views",
        selection=_views(project).without_checks() | _checks(project, STREAM_KEY_UNIQUE),
        description="One epoch over all views: reads what changed in the sources and applies it.",
    )


def verify_job(project: Project) -> UnresolvedAssetJobDefinition:
    """Return the job that runs every query in full and compares; it materializes nothing."""
    return define_asset_job(
        "verify_views",
        selection=_checks(project, MATCHES_FULL_RECOMPUTE),
        description="Compares every view with its query run in full, both ways.",
    )


def _views(project: Project) -> AssetSelection:
    return AssetSelection.assets(*[AssetKey(view.name) for view in project.views])


def _checks(project: Project, name: str) -> AssetSelection:
    return AssetSelection.checks(*[AssetCheckKey(AssetKey(view.name), name) for view in project.views])
