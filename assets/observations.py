"""Logs which versions of its sources a run has read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster import AssetExecutionContext, AssetKey, AssetObservation

from relstate_dagster.assets.metadata import Metadata
from relstate_dagster.assets.specs import ProjectAssets

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import ViewReport

_VERSION = "version"


class SourceObservations:
    """Logs an observation of each source with a new version.

    They carry no data version of Dagster's. Dagster would compare it with the one at the begin of the run, and show views
    as out of date that have just read it. Sources that an asset of the code location stands for are left to that.
    """

    def __init__(self, context: AssetExecutionContext, assets: ProjectAssets) -> None:
        self._context = context
        self._keys = assets.keys
        self._known: dict[AssetKey, int | None] | None = None
        self._defined = [spec.key for spec in assets.sources]

    def log(self, report: ViewReport) -> None:
        """Log the sources' versions that a view's epoch has read."""
        if report.skipped:
            return
        for name, version in report.source_versions.items():
            key = self._keys.get(name)
            if key not in self._defined or key is None or self._versions().get(key) == version:
                continue
            self._versions()[key] = version
            metadata: Metadata = {_VERSION: version, "epoch": report.epoch}
            if name in report.rows_in:
                metadata["rows in +"], metadata["rows in −"] = report.rows_in[name]
            self._context.log_event(AssetObservation(asset_key=key, metadata=metadata))

    def _versions(self) -> dict[AssetKey, int | None]:
        """Last observed versions, asked for once."""
        if self._known is None:
            self._known = {
                record.asset_entry.asset_key: _version_in(record.asset_entry.last_observation)
                for record in self._context.instance.get_asset_records(self._defined)
            }
        return self._known


def _version_in(entry: object) -> int | None:
    observation = getattr(entry, "asset_observation", None)
    value = observation.metadata.get(_VERSION) if observation is not None else None
    return getattr(value, "value", None)
