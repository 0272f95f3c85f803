"""What lowering a node of Catalyst's gives, and names for its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.planner.nodes import PlanNode


@dataclass(frozen=True, slots=True)
class Lowered:
    """A plan node, and the column that each Catalyst expression id became."""

    node: PlanNode
    names: Mapping[int, str]


class NameSpace:
    """Hands out column names that are unique within one node."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.lower() for name in taken}

    def named(self, expression: Any) -> str:
        """The column of something that the user has named: not as what operators call theirs, which begin with ``_``."""
        name = str(expression.name())
        return self.unique(f"c{name}" if name.startswith("_") else name)

    def unique(self, wanted: str) -> str:
        """The name as wanted, or with a number if it is taken."""
        name, number = wanted, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name.lower())
        return name
