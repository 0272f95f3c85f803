"""The sizes that single lookups, sources, indexes and tables go by."""

from __future__ import annotations

from relstate_dagster.state_lib.size_settings import Tuning, current_sizes


def tuning() -> Tuning:
    """The sizes that this process goes by within one lookup, source, index or table."""
    return current_sizes().tuning
