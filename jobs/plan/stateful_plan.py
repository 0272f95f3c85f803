"""A stored plan: the id and the state tables of each node.

An epoch derives none of them again.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, Final

from relstate_dagster.jobs.plan import nodes as node_types
from relstate_dagster.jobs.plan.aggregates.registry import with_stored_kinds
from relstate_dagster.jobs.plan.distribution import has_exchanges
from relstate_dagster.jobs.plan.nodes import TODAY, Aggregate, Materialize, PlanNode, walk
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.table_catalog import TableCatalog, desc_from_dict, desc_to_dict
from relstate_dagster.state_lib.table_schema import StateTableDesc

#: Of the stored form. 1: nested nodes, and tables in the order of the walk. 2: each call of an aggregate has a table.
FORMAT: Final = 3

_CLASSES: Final = {
    cls.__name__: cls for cls in vars(node_types).values() if isinstance(cls, type) and dataclasses.is_dataclass(cls)
}
_TAG: Final = "node"
_REFERENCE: Final = "ref"


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node of a stored plan.

    Parameters
    ----------
    id : of the node within its plan.
    tables : its state tables, each with its role as its label.
    """

    id: int
    node: PlanNode
    tables: tuple[StateTableDesc, ...]


@dataclass(frozen=True, slots=True)
class StatefulPlan:
    """A plan and the state of its nodes.

    Parameters
    ----------
    nodes : children first, each once; the last one is the root.
    has_exchanges : whether some rows go to other vnodes than they came in.

    Raises
    ------
    PlanError : ids are not unique, a node stands before one of its inputs, or the root materializes nothing.
    """

    nodes: tuple[PlannedNode, ...]
    has_exchanges: bool

    def __post_init__(self) -> None:
        for kind, ids in (("node", [n.id for n in self.nodes]), ("table", [t.table_id for t in self.tables])):
            twice = sorted({number for number in ids if ids.count(number) > 1})
            if twice:
                raise PlanError(f"a plan has {kind} ids more than once: {twice}")
        known: set[PlanNode] = set()
        for planned in self.nodes:
            if not known.issuperset(planned.node.children):
                raise PlanError(f"node {planned.id} of a plan stands before one of its inputs")
            known.add(planned.node)
        if not self.nodes or not isinstance(self.nodes[-1].node, Materialize) or len(self.nodes[-1].tables) != 1:
            raise PlanError("a plan has no materialization with one state table at its root")

    @classmethod
    def allocate(cls, root: Materialize, first_table_id: int) -> StatefulPlan:
        """Give each node of a plan an id and its state tables.

        Table ids begin with the given one.
        """
        found, catalog = [], TableCatalog(first_table_id)
        for number, node in enumerate(walk(root), start=1):
            tables, catalog = catalog.allocate(infer_state_tables(node))
            found.append(PlannedNode(number, node, tables))
        return cls(tuple(found), has_exchanges(root))

    @property
    def root(self) -> Materialize:
        """The node that is the view."""
        root = self.nodes[-1].node
        assert isinstance(root, Materialize)
        return root

    @property
    def tables(self) -> tuple[StateTableDesc, ...]:
        """All state tables, that of the view last."""
        return tuple(table for planned in self.nodes for table in planned.tables)

    def with_tables(self, tables: Mapping[int, StateTableDesc]) -> StatefulPlan:
        """The same plan with other descriptions of its tables, by table id: vnodes grow."""
        grown = (dataclasses.replace(n, tables=tuple(tables.get(t.table_id, t) for t in n.tables)) for n in self.nodes)
        return StatefulPlan(tuple(grown), self.has_exchanges)

    def planned_again(self, root: Materialize) -> StatefulPlan:
        """The state of this plan with the nodes of an equal one.

        These may say more.

        Raises
        ------
        PlanError : the plans are not equal.
        """
        if root != self.root:
            raise PlanError("a plan has other nodes than the one whose state it is to take over")
        found = (PlannedNode(n.id, node, n.tables) for n, node in zip(self.nodes, walk(root), strict=True))
        return StatefulPlan(tuple(found), self.has_exchanges)

    def on(self, day: date) -> StatefulPlan:
        """The plan with a date for :data:`.nodes.TODAY`; the state and all ids are the same."""
        text = json.dumps(self.to_dict())
        return StatefulPlan.from_dict(json.loads(text.replace(TODAY, f"DATE '{day.isoformat()}'")))

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        ids = {planned.node: planned.id for planned in self.nodes}
        stored = [
            {"id": n.id, "tables": [desc_to_dict(t) for t in n.tables], "plan": _plain(n.node, ids, is_top=True)}
            for n in self.nodes
        ]
        return {"format": FORMAT, "has_exchanges": self.has_exchanges, "nodes": stored}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> StatefulPlan:
        """A plan from plain values.

        Raises
        ------
        PlanError : they are not those of a plan, or of a later version.
        """
        try:
            if "format" not in stored:
                return _of_format_1(stored)
            if stored["format"] not in (2, FORMAT):
                raise PlanError(
                    f"a stored plan has format {stored['format']}, this version reads {FORMAT}: upgrade relstate-dagster"
                )
            known: dict[int, PlanNode] = {}
            found = []
            for entry in stored["nodes"]:
                node = _node(entry["plan"], known)
                if not isinstance(node, PlanNode):
                    raise PlanError(f"a stored plan has {type(node).__name__} where a node belongs")
                if entry["id"] in known:
                    raise PlanError(f"a plan has node ids more than once: [{entry['id']}]")
                known[entry["id"]] = node
                found.append(PlannedNode(entry["id"], node, tuple(desc_from_dict(t) for t in entry["tables"])))
            return cls(tuple(found), bool(stored["has_exchanges"]))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PlanError(f"a stored plan is damaged: {error!r}") from error


def _plain(value: Any, ids: Mapping[PlanNode, int], *, is_top: bool = False) -> Any:
    """A node, or a value within one, as plain values; its inputs by their ids."""
    if isinstance(value, PlanNode) and not is_top:
        return {_REFERENCE: ids[value]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {f.name: _plain(getattr(value, f.name), ids) for f in dataclasses.fields(value) if f.init}
        return {_TAG: type(value).__name__, **own}
    if isinstance(value, tuple):
        return [_plain(item, ids) for item in value]
    return value


def _node(value: Any, known: Mapping[int, PlanNode]) -> Any:
    """The node, or the value within one, that :func:`_plain` wrote."""
    if isinstance(value, dict) and _REFERENCE in value:
        if value[_REFERENCE] not in known:
            raise PlanError(f"a stored plan refers to node {value[_REFERENCE]}, which does not stand before")
        return known[value[_REFERENCE]]
    if isinstance(value, dict):
        return _made(value[_TAG], {name: _node(item, known) for name, item in value.items() if name != _TAG})
    if isinstance(value, list):
        return tuple(_node(item, known) for item in value)
    return value


def _made(name: str, values: dict[str, Any]) -> Any:
    cls = _CLASSES.get(name)
    if cls is None or cls is PlanNode:
        raise PlanError(f"a stored plan has an unknown node {name}; upgrade relstate-dagster")
    expected = _types_of(cls)
    for field_name, value in values.items():
        if field_name not in expected:
            raise PlanError(
                f"a stored plan has {name}.{field_name}, which this version does not know; upgrade relstate-dagster"
            )
        if not _is_of(value, expected[field_name]):
            raise PlanError(f"a stored plan is damaged: {name}.{field_name} is {value!r}")
    if cls is Aggregate:
        values = {"shares_value_state": False, **values}  # which formats 1 and 2 do not have
    try:
        node = cls(**values)
        return with_stored_kinds(node) if isinstance(node, Aggregate) else node
    except TypeError as error:
        raise PlanError(f"a stored plan is damaged: {name}: {error}") from error


@cache
def _types_of(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}


def _is_of(value: Any, expected: Any) -> bool:
    """Whether a value has a type as the fields of nodes declare them."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(value, one) for one in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        items = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return len(value) == len(items) and all(map(_is_of, value, items))
    return isinstance(value, expected) and not (expected is int and isinstance(value, bool))


def _of_format_1(stored: Mapping[str, Any]) -> StatefulPlan:
    """A plan of format 1, whose tables follow the order of the walk."""
    root = _node(stored["plan"], {})
    if not isinstance(root, Materialize):
        raise PlanError("a stored plan has no materialization at its root")
    remaining = [desc_from_dict(table) for table in stored["tables"]]
    found = []
    for number, node in enumerate(walk(root), start=1):
        wanted = infer_state_tables(node)
        tables, remaining = tuple(remaining[: len(wanted)]), remaining[len(wanted) :]
        if tuple(table.schema for table in tables) != wanted:
            raise PlanError("an earlier version has planned other state tables; rebuild the view with --full-refresh")
        found.append(PlannedNode(number, node, tables))
    if remaining:
        raise PlanError(f"a stored plan has {len(remaining)} state table(s) that no node of it needs")
    return StatefulPlan(tuple(found), has_exchanges(root))
