"""Other sizes for a while, and the fixture ``resized`` as tests declare it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relstate_dagster.state_lib import size_settings
from relstate_dagster.state_lib.size_settings import SizeSettings, current_sizes

Resized = Callable[..., SizeSettings]


@contextmanager
def changed_sizes(**changes: float) -> Iterator[SizeSettings]:
    """Other sizes for a while, in all threads of the process."""
    before = current_sizes()
    size_settings._current = before.changed(**changes)
    try:
        yield size_settings._current
    finally:
        size_settings._current = before
