"""The sizes by which epochs are planned; nothing but :mod:`.jobs.view_epoch.plan` imports this."""

from __future__ import annotations

from relstate_dagster.state_lib.size_settings import Sizing, current_sizes


def sizing() -> Sizing:
    """The sizes by which this process plans epochs."""
    return current_sizes().sizing
