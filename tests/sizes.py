"""The fixture ``resized`` as tests declare it."""

from collections.abc import Callable

from relstate_dagster.state_lib.size_settings import SizeSettings

Resized = Callable[..., SizeSettings]
