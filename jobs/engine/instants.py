"""The instant of an epoch: ``now()`` in every view, fixed when the epoch begins."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

#: Gives the time, aware of its zone.
Clock: TypeAlias = Callable[[], datetime]

_UNIX = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Zones by their distance from UTC, as Spark takes them besides names.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


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


def date_in(zone: str, instant: datetime) -> date:
    """The date at an instant in a time zone of Spark's (``spark.sql.session.timeZone``).

    Raises
    ------
    ValueError : there is no such zone here.
    """
    return instant.astimezone(_zone(zone)).date()


def is_known_zone(name: str) -> bool:
    """Whether Python knows a time zone of Spark's, which has short names besides."""
    try:
        _zone(name)
    except ValueError:
        return False
    return True


def _zone(name: str) -> tzinfo:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, *parts = offset.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        away = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(away if sign == "+" else -away)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {name}") from error


def start_of_day(zone: str, instant: datetime) -> datetime:
    """Beginning of the day of an instant, in a time zone of Spark's.

    Raises
    ------
    ValueError : there is no such zone here.
    """
    return datetime.combine(date_in(zone, instant), time.min, _zone(zone)).astimezone(timezone.utc)
