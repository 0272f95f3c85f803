"""Checks of the plan that a view's function gives, as :mod:`.jobs.planner.query_text` checks a text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from relstate_dagster.jobs.planner.known_functions import REFUSED
from relstate_dagster.jobs.planner.trees import Trees, class_name, items
from relstate_dagster.state_lib.errors import PlanError

_UDFS: Final = frozenset(
    {"PythonUDF", "PythonUDAF", "PythonUDTF", "PandasAggregate", "ScalaUDF", "ScalaAggregator", "ScalaUDAF"}
)
#: Leaves whose rows are in the plan itself.
_CONSTANT: Final = frozenset({"LocalRelation", "OneRowRelation", "Range", "CTERelationRef", "UnionLoopRef"})
#: Nodes that call functions with whole rows.
_CALLING: Final = (
    *("MapIn", "FlatMap", "MapPartitions", "MapElements", "MapGroups", "CoGroup", "AppendColumns", "PythonMapIn"),
    *("ArrowEval", "BatchEval", "TypedFilter", "TransformWithState", "AttachDistributedSequence", "DeserializeToObject"),
)
_NODES: Final = {
    "Sample": "sample() gives other rows every time",
    "CollectMetrics": "observe() is for whoever runs a query; leave it out",
}


def relations_in(trees: Trees, analysed: Any, known: Collection[str]) -> tuple[str, ...]:
    """Known sources and views that an analysed plan reads by their names."""
    by_lower = {name.lower(): name for name in known}
    found: dict[str, None] = {}

    def visit(plan: Any) -> None:
        # A name that the query gives to rows stands above another node.
        if class_name(plan) == "SubqueryAlias" and (class_name(plan.child()) == "View" or not plan.child().children().size()):
            name = by_lower.get(str(plan.identifier().name()).lower())
            if name is not None:
                found[name] = None
                return  # what a plain view reads is its own
        for inner in _below(trees, plan):
            visit(inner)

    visit(analysed)
    return tuple(found)


def check_analysed(trees: Trees, analysed: Any, query: str, own: Collection[str], is_relation: Any) -> None:
    """Check what a function's plan reads and calls, as that of SQL.

    Parameters
    ----------
    query : names it in messages.
    own : names of the user's functions.
    is_relation : whether a leaf is a source or view.

    Raises
    ------
    PlanError : it reads or calls something else.
    """
    ours = {name.lower() for name in own}
    for node in _nodes(trees, analysed):
        kind = class_name(node)
        if kind in _NODES:
            raise PlanError(f"{query}: {_NODES[kind]}")
        if kind.startswith("Deduplicate") and node.keys().size() < node.child().output().size():
            raise PlanError(
                f"{query}: dropDuplicates of some columns keeps any row of those that have them; keep the first by "
                "row_number() over a window with an order, or aggregate"
            )
        if kind.startswith(_CALLING):
            raise PlanError(
                f"{query} calls a Python or Java function with its rows ({node.nodeName()}), which Spark cannot show"
            )
        if not node.children().size() and kind not in _CONSTANT and not is_relation(node):
            raise PlanError(_of_leaf(query, kind, node))
        for expression in items(node.expressions()):
            _check_expression(trees, expression, query, ours)


def _of_leaf(query: str, kind: str, leaf: Any) -> str:
    if kind == "LogicalRDD":
        return (
            f"{query} makes rows in Python (createDataFrame): write constant rows by spark.sql('VALUES …'), or declare a source"
        )
    described = str(leaf.simpleString(5))
    return (
        f"{query} reads a table or files that are no source of this warehouse ({described[:120]}): declare a source (CREATE "
        "TABLE name … LOCATION '…') and read spark.table(name)"
    )


def _check_expression(trees: Trees, expression: Any, query: str, own: Collection[str]) -> None:
    kind = class_name(expression)
    if kind in _UDFS:
        name = _name_of(kind, expression)
        if name.lower() not in own:
            raise PlanError(own_function(query, name or kind))
    name = str(expression.prettyName()).lower()
    if name in REFUSED and kind not in _UDFS:
        raise PlanError(f"{query} calls {name}: {REFUSED[name]} (docs/limitations.md has the list)")
    for child in items(expression.children()):
        _check_expression(trees, child, query, own)


def own_function(query: str, name: str) -> str:
    """The message about a function that only the query's own code knows."""
    return (
        f"{query} calls {name}, a function of its own: views call what RELSTATE_FUNCTIONS registers, by name "
        f"(F.call_function('{name}', …)), or Spark's functions"
    )


def _name_of(kind: str, expression: Any) -> str:
    if kind.startswith("Scala"):
        name = expression.udfName() if kind == "ScalaUDF" else expression.aggregatorName()
        return str(name.get()) if name.isDefined() else ""
    return str(expression.name())


def _nodes(trees: Trees, plan: Any) -> Iterator[Any]:
    """Nodes of a plan, and of the subqueries in it."""
    yield plan
    for inner in _below(trees, plan):
        yield from _nodes(trees, inner)


def _below(trees: Trees, plan: Any) -> Iterator[Any]:
    """Children of a plan's root, and subqueries in its expressions."""
    yield from items(plan.children())
    if trees.contains(plan, "PLAN_EXPRESSION"):
        yield from items(plan.subqueries())
