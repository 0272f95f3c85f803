"""Processes that tests start, wait for and interrupt."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable


def heeds_interrupts() -> None:
    """In a process that is about to start: a shell that runs tests in the background has them ignored by all it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until(condition: Callable[[], object], what: str, seconds: float = 180) -> None:
    """Wait until something holds; ``what`` is what a failure says did not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
