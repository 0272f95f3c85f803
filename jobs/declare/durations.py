"""Lengths of time as properties write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_DURATION: Final = re.compile(r"(\d+)\s*(second|minute|hour|day|week)s?", re.IGNORECASE)


def duration(text: str) -> timedelta:
    """Read ``30 minutes``, ``2 hours``, ``1 day``, ``3 weeks``.

    Raises
    ------
    ValueError
        It is no length of time, is zero, or too long.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not int(match.group(1)):
        raise ValueError(f"{text!r} is no length of time")
    try:
        return timedelta(**{f"{match.group(2).lower()}s": int(match.group(1))})
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None
