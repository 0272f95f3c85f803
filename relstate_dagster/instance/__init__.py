"""Parts of a Dagster instance for ``dagster.yaml``: runs that start at once."""

from __future__ import annotations

from relstate_dagster.instance.coordinator import PromptRunCoordinator
from relstate_dagster.instance.launcher import WarmRunLauncher

__all__ = ["PromptRunCoordinator", "WarmRunLauncher"]
