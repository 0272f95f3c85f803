"""The fixture ``resized`` as tests declare it."""

from collections.abc import Callable

from state_lib.sizing import Sizing

Resized = Callable[..., Sizing]
