"""Processes that tests start, wait for and interrupt."""

from __future__ import annotations

import os
import signal
import socket
import sys
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


def free_port() -> int:
    """A port of loopback on which nothing listens at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(**others: str) -> dict[str, str]:
    """This process's environment, with its paths of modules, and other variables."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **others}
