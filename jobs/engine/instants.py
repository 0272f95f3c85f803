"""The instant of an epoch: ``now()`` in every view, fixed when the epoch begins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

#: Gives the time, aware of its zone.
Clock: TypeAlias = Callable[[], datetime]

_UNIX = datetime(1970, 1, 1, tzinfo=timezone.utc)


def utc_now() -> datetime:
    """The time of this machine, in microseconds, as Spark's timestamps are."""
    return datetime.now(timezone.utc)


def read_clock(clock: Clock) -> datetime:
    """Time of a clock, in UTC.

    Raises
    ------
    ValueError : it says no time zone.
    """
    instant = clock()
    unix_microseconds(instant)
    return instant.astimezone(timezone.utc)


def unix_microseconds(instant: datetime) -> int:
    """An instant as Spark stores a TIMESTAMP.

    Raises
    ------
    ValueError : the instant has no time zone, so it could be any.
    """
    if instant.tzinfo is None:
        raise ValueError(f"the clock gave {instant.isoformat()} without a time zone; use datetime.now(timezone.utc)")
    return (instant - _UNIX) // timedelta(microseconds=1)


def timestamp_sql(instant: datetime) -> str:
    """An instant as a TIMESTAMP in Spark SQL, equal in every time zone."""
    return f"timestamp_micros({unix_microseconds(instant)})"
