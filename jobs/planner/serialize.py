"""Plans as plain values and back, so that they can be stored with their view."""

from __future__ import annotations

import dataclasses
from typing import Any

from relstate_dagster.jobs.planner import nodes
from relstate_dagster.jobs.planner.nodes import PlanNode
from relstate_dagster.state_lib.errors import PlanError

_CLASSES = {cls.__name__: cls for cls in vars(nodes).values() if isinstance(cls, type) and dataclasses.is_dataclass(cls)}


def plan_to_dict(value: Any) -> Any:
    """A node, or a value within one, as dicts, lists and plain values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plan_to_dict(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return {"node": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return [plan_to_dict(item) for item in value]
    return value


def plan_from_dict(value: Any) -> Any:
    """The node that :func:`plan_to_dict` wrote.

    Raises
    ------
    PlanError : the stored plan names a node that this version does not know.
    """
    if isinstance(value, dict):
        cls = _CLASSES.get(value["node"])
        if cls is None or cls is PlanNode:
            raise PlanError(f"a stored plan has an unknown node {value['node']}; upgrade relstate-dagster")
        return cls(**{k: plan_from_dict(v) for k, v in value.items() if k != "node"})
    if isinstance(value, list):
        return tuple(plan_from_dict(item) for item in value)
    return value
