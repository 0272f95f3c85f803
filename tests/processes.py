"""Processes that tests start and interrupt."""

from __future__ import annotations

import signal


def heeds_interrupts() -> None:
    """In a process that is about to start: a shell that runs tests in the background has them ignored by all it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
