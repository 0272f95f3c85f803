"""Checks of a view's text: one query over sources and views, and nothing else.

Spark's parser reads the text and runs nothing (``session.sql`` would run a command while it reads it). Only known nodes of
the tree pass. So a command, a script, a table by its path or a function that reads files is refused before Spark looks at
it again. Analysis itself opens files and computes VALUES.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.declare import dependencies
from relstate_dagster.jobs.declare.query_function import Query
from relstate_dagster.jobs.engine.functions import UserFunctions, not_registered
from relstate_dagster.jobs.engine.spark_connect import is_remote
from relstate_dagster.jobs.planner.known_functions import ALLOWED, REFUSED
from relstate_dagster.jobs.planner.trees import Trees, class_name, items
from relstate_dagster.state_lib.errors import PlanError

#: Nodes that a query is parsed to.
_NODES: Final = frozenset(
    """
    Aggregate CTERelationDef Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit
    LocalRelation Offset OneRowRelation PipeOperator Pivot Project RebalancePartitions Repartition RepartitionByExpression
    Sample Sort SubqueryAlias Union Unpivot UnresolvedHaving UnresolvedHint UnresolvedInlineTable UnresolvedQualify
    UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith
    Window WithWindowDefinition
    """.split()  # noqa: SIM905 - one name a line would be pages
)
_LOGICAL_PLAN = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"
_SUBQUERY = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
_ITERABLE = "scala.collection.Iterable"
_PRODUCT = "scala.Product"
#: Where Spark's own functions may be named by a longer name.
_OF_SPARK = ("", "builtin", "system.builtin", "session", "system.session")
#: Names that the text computes, and not writes.
_HIDDEN_NAMES = frozenset({"ExpressionWithUnresolvedIdentifier", "PlanWithUnresolvedIdentifier"})


@dataclass(slots=True)
class ParsedQuery:
    """A text that is a query.

    Parameters
    ----------
    plan : Spark's tree, not analysed.
    relations : what it reads, as written there, in order of first appearance.
    functions : what it calls, without what Spark knows by a word of its own.
    """

    plan: Any
    relations: dict[str, None] = field(default_factory=dict)
    functions: dict[tuple[str, ...], None] = field(default_factory=dict)


def parse_query(session: SparkSession, text: str) -> ParsedQuery:
    """Read a query's text; nothing is analysed or run.

    Raises
    ------
    PlanError : it is no query, or reads something by its path.
    """
    try:
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except (PySparkException, Py4JJavaError) as error:
        # Of scripts, Spark 4.0 says in an exception that PySpark does not know that it takes none.
        text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
        problem = " ".join(text.split("== SQL ==", 1)[0].split())
        raise PlanError(f"Spark refuses the query: {problem}") from error
    found = ParsedQuery(plan)
    _Walk(session, found).plan(plan, frozenset())
    return found


def check_calls(query: ParsedQuery, own: Collection[str], functions: UserFunctions | None) -> None:
    """Check that a query calls only functions that views may call.

    Parameters
    ----------
    own : names of the user's own functions.
    functions : what registers them.

    Raises
    ------
    PlanError : it calls something else.
    """
    ours = {name.lower() for name in own}
    for parts in query.functions:
        name, written = parts[-1].lower(), ".".join(parts)
        if len(parts) == 1 and name in ours:
            continue
        if name in REFUSED:
            raise PlanError(f"a view cannot call {written}: {REFUSED[name]} (docs/limitations.md has the list)")
        if name not in ALLOWED or ".".join(parts[:-1]).lower() not in _OF_SPARK:
            raise PlanError(
                f"a view cannot call `{written}`, which is no function of Spark's that views may call. A function of your own "
                f"is one that {not_registered(functions)}"
            )


def relations_named(query: Query) -> tuple[str, ...]:
    """Sources and views that a query names.

    By Spark's parser where there is a session, else by its text; of a function, what it was found to read.
    """
    return _named_in_text(query) if isinstance(query, str) else query.reads or ()


def named_among(queries: Iterable[Query], names: Iterable[str]) -> set[str]:
    """Those of some names that queries name, in any case."""
    named = {name.lower() for query in queries for name in relations_named(query)}
    return {name for name in names if name.lower() in named}


@lru_cache(maxsize=1024)
def _named_in_text(text: str) -> tuple[str, ...]:
    session = SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)
    if session is None or is_remote(session):
        return dependencies(text)
    return tuple(parse_query(session, text).relations)


class _Walk:
    def __init__(self, session: SparkSession, found: ParsedQuery) -> None:
        self._trees = Trees(session)
        self._found = found

    def plan(self, plan: Any, known: frozenset[str]) -> None:
        """Look through a plan, in which some names are those of common table expressions."""
        kind = class_name(plan)
        if kind not in _NODES:
            raise PlanError(f"a view is a query over sources and views, and not {_described(kind, plan)}")
        if kind == "UnresolvedRelation":
            self._relation(plan, known)
        elif kind == "UnresolvedTableValuedFunction":
            self._calls(tuple(str(part) for part in items(plan.name())))
        elif kind == "UnresolvedWith":
            for relation in items(plan.cteRelations()):
                name = str(relation._1()).lower()
                self.plan(relation._2(), known | {name} if plan.allowRecursion() else known)
                known |= {name}
        for child in items(plan.children()):
            self.plan(child, known)
        for n in range(plan.productArity()):
            self._value(plan.productElement(n), known)

    def _relation(self, plan: Any, known: frozenset[str]) -> None:
        parts = [str(part) for part in items(plan.multipartIdentifier())]
        if plan.isStreaming():
            raise PlanError("a view is a query over sources and views, and not a stream")
        if len(parts) > 1:
            raise PlanError(
                f"{'.'.join(parts)} is read by path or by a name in several parts: declare it as a source "
                "(CREATE TABLE name … LOCATION '…') and read it by that name"
            )
        if parts[0].lower() not in known:
            self._found.relations.setdefault(parts[0])

    def _value(self, value: Any, known: frozenset[str]) -> None:
        """Inspect an argument of a plan.

        Plans among them are its children, and seen as such.
        """
        if not isinstance(value, JavaObject):
            return
        if self._trees.is_a(value, _EXPRESSION):
            self._expression(value, known)
        elif self._trees.is_a(value, _ITERABLE):
            for element in items(value.toSeq()):
                self._value(element, known)
        elif self._trees.is_a(value, _PRODUCT) and str(value.getClass().getName()).startswith(("scala.Tuple", "scala.Some")):
            for n in range(value.productArity()):
                self._value(value.productElement(n), known)

    def _expression(self, expression: Any, known: frozenset[str]) -> None:
        if not self._trees.contains(expression, "PLAN_EXPRESSION"):
            try:
                parts = json.loads(str(expression.toJSON()))
            except (Py4JJavaError, ValueError):
                parts = None
            if parts is not None:
                for node in _nodes(parts):
                    self._node(str(node["class"]).rsplit(".", 1)[-1], node)
                return
        kind = class_name(expression)
        named: dict[str, Any] = {}
        if kind == "UnresolvedFunction":
            named = {"nameParts": f"[{', '.join(str(part) for part in items(expression.nameParts()))}]"}
        elif kind == "UnresolvedGenerator":
            named = {"name": {"funcName": str(expression.name().funcName())}}
        self._node(kind, named)
        if self._trees.is_a(expression, _SUBQUERY):
            self.plan(expression.plan(), known)
        for child in items(expression.children()):
            self._expression(child, known)

    def _node(self, kind: str, node: dict[str, Any]) -> None:
        if kind in _HIDDEN_NAMES:
            raise PlanError("a view cannot compute the names of what it reads and calls (IDENTIFIER)")
        if kind == "UnresolvedFunction":
            self._calls(tuple(str(node["nameParts"])[1:-1].split(", ")))
        elif kind == "UnresolvedGenerator":
            self._calls((str(node["name"]["funcName"]),))

    def _calls(self, name: tuple[str, ...]) -> None:
        self._found.functions.setdefault(name)


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All tree nodes within JSON of Catalyst's."""
    if isinstance(value, dict):
        if "class" in value:
            yield value
        for inner in value.values():
            yield from _nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)


def _described(kind: str, plan: Any) -> str:
    labels = {
        "ScriptTransformation": "TRANSFORM … USING, which runs a program",
        "RelationTimeTravel": "a table at a fixed version",
        "NamedStreamingRelation": "a stream",
        "CompoundBody": "a script",
    }
    return labels.get(kind, str(plan.nodeName()))
