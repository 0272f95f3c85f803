"""Age of a view's state, for ``state.ttl``: epochs marked with their instants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

#: Marks are at least an eighth of the time to live apart, so rows expire at most an eighth of it too late.
_MARKS: Final = 8


@dataclass(frozen=True, slots=True)
class Mark:
    """An epoch of a view, and its instant."""

    epoch: int
    instant: datetime


@dataclass(frozen=True, slots=True)
class Expiry:
    """Marks by which the age of a view's state is known.

    Parameters
    ----------
    marks
        Epochs younger than the time to live, oldest first, an eighth of it apart or more.
    until
        State that was last written in this epoch or before it may be gone; ``None`` before anything can be. It is in the
        catalog before anything is deleted.
    """

    marks: tuple[Mark, ...] = ()
    until: int | None = None

    def after(self, epoch: int, instant: datetime, ttl: timedelta | None) -> Expiry:
        """The marks after one more epoch of the view.

        Without a time to live nothing more expires.
        """
        if ttl is None:
            return self if self.until is None else Expiry(until=self.until)
        marks = self.marks
        if not marks or instant - marks[-1].instant >= ttl / _MARKS:
            marks = (*marks, Mark(epoch, instant))
        old = [mark.epoch for mark in marks if instant - mark.instant >= ttl]
        young = tuple(mark for mark in marks if instant - mark.instant < ttl)
        return Expiry(young, max(old, default=self.until))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"marks": [[mark.epoch, mark.instant.isoformat()] for mark in self.marks], "until": self.until}

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> Expiry:
        """Marks from the values of :meth:`to_dict`."""
        marks = tuple(Mark(epoch, datetime.fromisoformat(instant)) for epoch, instant in payload.get("marks", ()))
        return cls(marks, payload.get("until"))
