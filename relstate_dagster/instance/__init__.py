"""Parts of a Dagster instance, for its ``dagster.yaml``: runs that start at once, in a process that is ready for them."""

from __future__ import annotations

from relstate_dagster.instance.coordinator import PromptRunCoordinator
from relstate_dagster.instance.launcher import WarmRunLauncher

__all__ = ["PromptRunCoordinator", "WarmRunLauncher"]
