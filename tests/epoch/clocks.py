"""A clock for epochs of a test."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone


class SetClock:
    """A clock that stands where it was set, and counts how often it was asked."""

    def __init__(self) -> None:
        self.now = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
        self.asked = 0

    def __call__(self) -> datetime:
        self.asked += 1
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)
