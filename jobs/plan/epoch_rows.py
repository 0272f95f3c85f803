"""Rows that went through a view's plan in its last changing epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relstate_dagster.jobs.plan.nodes import PlanNode, walk

#: Rows inserted and deleted.
Flow = tuple[int, int]


@dataclass(frozen=True, slots=True)
class EpochRows:
    """Rows of one epoch.

    Parameters
    ----------
    epoch : which.
    flows : what the nodes of the plan gave, in the order of its walk; ``None`` where it was not counted.
    written : rows added to state tables, by their ids.
    """

    epoch: int
    flows: tuple[Flow | None, ...]
    written: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, epoch: int, root: PlanNode, flows: Mapping[PlanNode, Flow], written: Mapping[int, int]) -> EpochRows:
        """Rows of an epoch, from those of the nodes that are known."""
        return cls(epoch, tuple(flows.get(node) for node in walk(root)), dict(written))

    def by_node(self, root: PlanNode) -> dict[PlanNode, Flow]:
        """Known rows of a plan's nodes.

        Nothing if the epoch had another plan.
        """
        nodes = list(walk(root))
        if len(nodes) != len(self.flows):
            return {}
        return {node: flow for node, flow in zip(nodes, self.flows, strict=True) if flow is not None}

    def to_dict(self) -> dict[str, Any]:
        """As the catalog stores it."""
        written = {str(table): rows for table, rows in self.written.items()}
        return {"epoch": self.epoch, "flows": [None if f is None else list(f) for f in self.flows], "written": written}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> EpochRows:
        """Rows from the values of :meth:`to_dict`."""
        flows = tuple(None if flow is None else (flow[0], flow[1]) for flow in stored["flows"])
        return cls(stored["epoch"], flows, {int(table): rows for table, rows in stored["written"].items()})
