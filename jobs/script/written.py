"""Checks which tables and folders a statement writes to.

Spark's parser reads the statement and runs nothing. What it writes to is a name, a path in place of one, or a location.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.planner.trees import Trees, class_name, items
from relstate_dagster.jobs.registration.own_folders import OF_RUNS, OWN_FOLDERS, lies_in, refused
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.folders import is_table

_LOGICAL_PLAN: Final = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
_EXPRESSION: Final = "org.apache.spark.sql.catalyst.expressions.Expression"
_ITERABLE: Final = "scala.collection.Iterable"
_PRODUCT: Final = "scala.Product"
_URI: Final = "java.net.URI"
#: Statements that hold others, which are looked at one by one.
_HOLD_OTHERS: Final = frozenset(
    {"UnresolvedWith", "Union", "SubqueryAlias", "CompoundBody", "SingleStatement", "IfElseStatement", "WhileStatement"}
    | {"CaseStatement", "SimpleCaseStatement", "SearchedCaseStatement", "RepeatStatement", "LoopStatement", "ForStatement"}
    | {"ExceptionHandler"}
)
#: Statements whose first argument alone is written to.
_FIRST_IS_WRITTEN: Final = frozenset(
    {"InsertIntoStatement", "DeleteFromTable", "UpdateTable", "MergeIntoTable", "OverwriteByExpression"}
    | {"OverwritePartitionsDynamic", "AppendData", "RestoreTableStatement"}
)
_READ: Final = (
    *("Describe", "Show", "Explain", "Cache", "Uncache", "Refresh", "Set", "Create", "Drop", "Declare", "Reset", "Use"),
    *("Fetch", "Open", "Close", "Clear", "List"),
)
#: Of those, what says where files are written.
_LOCATED: Final = frozenset(
    {"CreateTable", "CreateTableAsSelect", "CreateNamespace", "SetTableLocation", "DropTable", "SetNamespaceLocation"}
    | {"SetTableProperties", "SetTableSerDeProperties", "CreateTempViewUsing", "ReplaceTable", "ReplaceTableAsSelect"}
)
_NAMES: Final = frozenset({"UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView", "UnresolvedIdentifier"})


@dataclass(frozen=True, slots=True)
class _Written:
    """A table name in parts, or a possible location."""

    parts: tuple[str, ...]
    is_name: bool = True
    is_folder: bool = False


def check_written(session: SparkSession, warehouse: Warehouse, state: CatalogState, text: str) -> None:
    """Check that a statement writes to nothing of the warehouse but the tables of sources.

    Raises
    ------
    DeclarationError : it does; says what, and what to do instead.
    """
    try:
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except PySparkException:
        return  # Spark refuses it again, and says why
    walk = _Walk(session)
    for written in walk.statement(plan):
        _check(warehouse, state, written)
    for inner in walk.texts:
        check_written(session, warehouse, state, inner)


def _check(warehouse: Warehouse, state: CatalogState, written: _Written) -> None:
    path = _path_of(state, written)
    root = warehouse.root
    if path is None or not (lies_in(path, root) or (written.is_folder and lies_in(root, path))):
        return
    # A table in the folder of sources is one, declared or not.
    sources = [*(source.path for source in state.sources.values()), *_tables_in(f"{root}/sources", path)]
    is_source = any(lies_in(path, source) and lies_in(source, path) for source in sources)
    if is_source and not any(lies_in(path, f"{root}/{folder}") for folder in OF_RUNS):
        return
    is_any_text = not written.is_name and not written.is_folder
    if is_any_text and not any(lies_in(path, f"{root}/{folder}") for folder in OWN_FOLDERS):
        return
    raise refused(root, path)


def _tables_in(folder: str, path: str) -> list[str]:
    """The path itself, if a table of that folder lies there."""
    return [path] if lies_in(posixpath.dirname(path.rstrip("/")), folder) and is_table(path) else []


def _path_of(state: CatalogState, written: _Written) -> str | None:
    """The path that a statement writes to; ``None`` if unknown."""
    if not written.is_name:
        return written.parts[0] if "/" in written.parts[0] else None
    last = written.parts[-1]
    if len(written.parts) == 2 and "/" in last:
        return last
    source = state.sources.get(as_declared(last, state.sources))
    if source is not None:
        return source.path
    return last if len(written.parts) > 1 else None


class _Walk:
    """Looks through what Spark's parser makes of a statement."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._trees = Trees(session)
        #: Texts of statements that a statement runs.
        self.texts: list[str] = []

    def statement(self, plan: Any) -> Iterator[_Written]:
        """Target of a statement; a query has none."""
        kind = class_name(plan)
        if kind in _HOLD_OTHERS:
            for n in range(plan.productArity()):
                yield from self._held(plan.productElement(n))
        elif kind == "UnresolvedExecuteImmediate":
            self.texts.append(self._computed(plan.productElement(0)))
        elif kind in _FIRST_IS_WRITTEN:
            yield from self._named(plan.productElement(0))
        elif kind == "CloneTableStatement":
            yield from self._named(plan.productElement(1))
            yield from self._texts(plan.productElement(6), is_folder=True)
        elif kind in _LOCATED or self._is_command(plan, kind):
            for n in range(plan.productArity()):
                element = plan.productElement(n)
                is_plan = self._trees.is_a(element, _LOGICAL_PLAN)
                yield from self._named(element) if is_plan else self._texts(element, is_folder=kind == "InsertIntoDir")

    def _is_command(self, plan: Any, kind: str) -> bool:
        of_spark = "org.apache.spark.sql.catalyst.plans.logical"
        is_command = self._trees.is_a(plan, f"{of_spark}.Command") or self._trees.is_a(plan, f"{of_spark}.ParsedStatement")
        return (is_command or kind == "InsertIntoDir") and not kind.startswith(_READ)

    def _held(self, value: Any) -> Iterator[_Written]:
        """Targets of the statements in an argument of a statement."""
        if self._trees.is_a(value, _LOGICAL_PLAN):
            yield from self.statement(value)
        elif self._trees.is_a(value, _ITERABLE):
            for element in items(value.toSeq()):
                yield from self._held(element)
        elif self._trees.is_a(value, _PRODUCT) and not self._trees.is_a(value, _EXPRESSION):
            for n in range(value.productArity()):
                yield from self._held(value.productElement(n))

    def _named(self, plan: Any) -> Iterator[_Written]:
        """The name that stands in a plan; none in one that is a query."""
        kind = class_name(plan)
        if kind in ("SubqueryAlias", "TimeTravel"):
            yield from self._named(plan.productElement(0 if kind == "TimeTravel" else 1))
        elif kind == "UnresolvedPathBasedDeltaTable":
            yield _Written((str(plan.path()),), is_name=False, is_folder=True)
        elif kind == "PlanWithUnresolvedIdentifier":
            text = self._computed(plan.productElement(0))
            parser = self._session._jsparkSession.sessionState().sqlParser()
            yield _Written(tuple(str(part) for part in items(parser.parseMultipartIdentifier(text))))
        elif kind in _NAMES:
            names = plan.nameParts() if kind == "UnresolvedIdentifier" else plan.multipartIdentifier()
            yield _Written(tuple(str(part) for part in items(names)))

    def _computed(self, expression: Any) -> str:
        """The text that an expression gives.

        Raises
        ------
        DeclarationError : Spark cannot compute it by itself.
        """
        try:
            (row,) = self._session.sql(f"SELECT CAST({expression.sql()} AS STRING)").collect()
        except PySparkException as error:
            raise DeclarationError(
                "the target of this statement is computed, and Spark cannot compute it before the statement runs: write the "
                "name, or the statement, itself"
            ) from error
        return str(row[0])

    def _texts(self, value: Any, *, is_folder: bool = False) -> Iterator[_Written]:
        """All texts in an argument of a statement; one may be a location."""
        if isinstance(value, str) or self._trees.is_a(value, _URI):
            yield _Written((str(value),), is_name=False, is_folder=is_folder)
        elif isinstance(value, JavaObject) and class_name(value) == "TableIdentifier":
            database = value.database()
            yield _Written((*([str(database.get())] if database.isDefined() else []), str(value.table())))
        elif isinstance(value, JavaObject) and class_name(value) == "UnresolvedTableSpec":
            yield from self._texts(value.location(), is_folder=True)
        else:
            for inner in self._inner(value):
                yield from self._texts(inner, is_folder=is_folder)

    def _inner(self, value: Any) -> Iterator[Any]:
        """Parts of a statement's argument; none of queries and expressions."""
        if self._trees.is_a(value, _ITERABLE):
            yield from items(value.toSeq())
            return
        is_tree = self._trees.is_a(value, _EXPRESSION) or self._trees.is_a(value, _LOGICAL_PLAN)
        if self._trees.is_a(value, _PRODUCT) and not is_tree:
            yield from (value.productElement(n) for n in range(value.productArity()))
