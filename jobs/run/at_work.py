"""Waiting for views that are at work, and saying how far they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Final

#: Seconds until it is first said how far views are; then twice as many each time, up to the second number.
_FIRST_SECONDS: Final = 15.0
_MOST_SECONDS: Final = 120.0


def wait_any(
    running: Mapping[Future[Any], str], progress: Callable[[str], str], tell: Callable[[str], None]
) -> set[Future[Any]]:
    """Wait until at least one has ended; where none is at work, for nothing.

    Parameters
    ----------
    running : what is at work, with its name.
    progress : says how far that of a name is.
    tell : called with that, of each, at growing intervals.
    """
    pause = _FIRST_SECONDS
    while running:
        ended = wait(running, timeout=pause, return_when=FIRST_COMPLETED).done
        if ended:
            return ended
        for name in running.values():
            tell(f"{name}: {progress(name)}")
        pause = min(2 * pause, _MOST_SECONDS)
    return set()
