"""Waiting for views or locks that another run or process holds."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relstate_dagster.state_lib.errors import EpochError

_log = logging.getLogger(__name__)

#: How long a run waits for others, where nothing else is said: an hourly run outlasts most of what may be in its way.
_WAIT_SECONDS = 600.0
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 2.0


def seconds_to_wait(wanted: float | None = None) -> float:
    """Seconds to wait for another run.

    As asked for, else RELSTATE_LOCK_WAIT_SECONDS, else ten minutes.
    """
    return float(os.environ.get("RELSTATE_LOCK_WAIT_SECONDS", _WAIT_SECONDS)) if wanted is None else wanted


@dataclass(frozen=True)
class Patience:
    """Settings of waiting for other runs.

    Parameters
    ----------
    wait_seconds : for how long (:func:`seconds_to_wait`).
    on_wait : called once for each that is waited for.
    interrupted : called again and again meanwhile; what it raises ends the waiting.
    """

    wait_seconds: float | None = None
    on_wait: Callable[[str], None] = _log.warning
    interrupted: Callable[[], None] = lambda: None


class Waiting:
    """One wait, from now on.

    Parameters
    ----------
    patience : how to wait.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._deadline = time.monotonic() + seconds_to_wait(patience.wait_seconds)
        self._pause = _LEAST_PAUSE
        self._said: set[str] = set()

    def pause(self, holders: Sequence[str]) -> None:
        """Wait for a moment, each time for a longer one.

        Parameters
        ----------
        holders : who is in the way, one at least: what it is and does.

        Raises
        ------
        EpochError : the time is over; it names the first of them.
        """
        self._patience.interrupted()
        if time.monotonic() >= self._deadline:
            raise EpochError(
                f"{holders[0]}, is still at work; run again later, or wait longer (--wait, or "
                f"RELSTATE_LOCK_WAIT_SECONDS; now {seconds_to_wait(self._patience.wait_seconds):.0f} s)"
            )
        for holder in holders:
            if holder not in self._said:
                self._said.add(holder)
                self._patience.on_wait(f"waiting for {holder}")
        time.sleep(min(self._pause, max(0.0, self._deadline - time.monotonic())))
        self._pause = min(2 * self._pause, _MOST_PAUSE)
