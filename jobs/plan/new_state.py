"""Nodes of a plan whose state is new in an epoch."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class NewState:
    """Nodes whose state is empty and is filled in an epoch.

    They are all nodes of a plan, some, or none.

    Parameters
    ----------
    ids : of the nodes, where they are some.
    is_all : whether they are all, as in a view's first epoch.
    """

    ids: frozenset[int] = frozenset()
    is_all: bool = False

    @property
    def is_some(self) -> bool:
        """Whether a part of the plan is filled while the rest goes on."""
        return bool(self.ids) and not self.is_all


NO_NEW_STATE: Final = NewState()


class Recompute(enum.Enum):
    """State of a view's nodes after an epoch that computes all of its rows.

    Its change set is all rows less those that the view has (:mod:`.jobs.operators.recompute`).
    """

    WITHOUT_STATE = "no state is kept"
    WITH_STATE = "state is filled"
