"""The fixture ``resized`` as tests declare it."""

from collections.abc import Callable

from relstate_dagster.state_lib.sizing import Sizing

Resized = Callable[..., Sizing]
