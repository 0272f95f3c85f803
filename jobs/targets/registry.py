"""Which class opens which kind of target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from relstate_dagster.jobs.targets.delta_target import DeltaTarget
from relstate_dagster.jobs.targets.protocol import Target

#: Opens the target of a view by the view's name and the target's path; by kind.
KINDS: Final[dict[str, Callable[[str, str], Target]]] = {"delta": DeltaTarget}


def open_target(kind: str, view: str, path: str) -> Target:
    """Open the target of a view."""
    return KINDS[kind](view, path)
