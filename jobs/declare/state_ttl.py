"""The property ``state.ttl``: how long operators keep untouched rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from relstate_dagster.jobs.declare.durations import duration
from relstate_dagster.state_lib.errors import DeclarationError

STATE_TTL: Final = "state.ttl"


def ttl_of(properties: Mapping[str, str], where: str) -> timedelta | None:
    """Time to live of a view's state; ``None`` if state never expires.

    Raises
    ------
    DeclarationError
        It is no length of time. ``where`` names the view.
    """
    text = properties.get(STATE_TTL)
    if text is None:
        return None
    try:
        return duration(text)
    except ValueError as error:
        raise DeclarationError(
            f"{where}: '{STATE_TTL}' = {text!r}: {error}; write it as in '30 days', '12 hours' or '90 minutes', or leave "
            "it out: state then never expires."
        ) from error
