"""The examples in the documentation of Spark's own functions, as expressions over columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.trees import class_name, items


@dataclass(frozen=True)
class Function:
    """A function of Spark's: its name, Catalyst's class, and the queries of its documentation."""

    name: str
    class_name: str
    queries: tuple[str, ...]


def functions(spark: SparkSession) -> list[Function]:
    """All functions that Spark has built in, of scalars and of tables, operators among them."""
    jvm: Any = spark._jvm
    found = []
    for registry in ("FunctionRegistry", "TableFunctionRegistry"):
        builtin = getattr(jvm.org.apache.spark.sql.catalyst.analysis, f"{registry}$").__getattr__("MODULE$").builtin()
        for identifier in items(builtin.listFunction().toSeq()):
            info = builtin.lookupFunction(identifier).get()
            queries = re.findall(r"^\s*> (.*?);\s*$", str(info.getExamples()), re.MULTILINE)
            found.append(Function(str(info.getName()), str(info.getClassName()), tuple(queries)))
    return sorted(found, key=lambda f: f.name)


def expressions(catalyst: Catalyst, query: str, *, everything: bool) -> Iterator[tuple[Any, Mapping[int, str]]]:
    """The expressions of an analysed query, over names for their columns: with columns for constants, or also as they are."""
    parsed = catalyst.session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    opened = _over_columns(catalyst, parsed)
    for plan in (opened, parsed):
        if plan is not None and (everything or plan is (opened or parsed)):
            for expression in _of_plan(_analysed(catalyst, plan)):
                yield expression, {int(a.exprId().id()): f"c{a.exprId().id()}" for a in items(expression.references().toSeq())}


def _analysed(catalyst: Catalyst, plan: Any) -> Any:
    datasets = catalyst.jvm.org.apache.spark.sql.classic.Dataset
    return datasets.ofRows(catalyst.session._jsparkSession, plan).queryExecution().analyzed()


def _of_plan(plan: Any) -> Iterator[Any]:
    for child in items(plan.children()):
        yield from _of_plan(child)
    if class_name(plan) == "Generate":
        yield plan.generator()
    elif class_name(plan) in ("Project", "Aggregate", "Window", "Filter"):
        for expression in items(plan.expressions()):
            yield from _parts(expression)


def _parts(expression: Any) -> Iterator[Any]:
    """An expression as the planner writes it: the calls of an aggregate apart."""
    kind = class_name(expression)
    if kind == "Alias":
        yield from _parts(expression.child())
    elif kind in ("AggregateExpression", "WindowExpression") or not _has_call(expression):
        if kind not in ("AttributeReference", "SortOrder"):
            yield expression
    else:
        for child in items(expression.children()):
            yield from _parts(child)


def _has_call(expression: Any) -> bool:
    return class_name(expression) == "AggregateExpression" or any(_has_call(c) for c in items(expression.children()))


def _over_columns(catalyst: Catalyst, parsed: Any) -> Any | None:
    """A SELECT of constants with a column in the place of every constant that may be one; ``None`` if none may."""
    if class_name(parsed) != "Project" or class_name(parsed.child()) != "OneRowRelation":
        return None
    literals = [found for e in items(parsed.projectList()) for found in _literals(e)]

    def with_columns(chosen: list[Any]) -> Any:
        plans = catalyst.jvm.org.apache.spark.sql.catalyst.plans.logical
        attributes = [catalyst.trees.alias(literal, f"l{n}").toAttribute() for n, literal in enumerate(chosen)]

        def replaced(expression: Any) -> Any:
            number = next((n for n, literal in enumerate(chosen) if literal is expression), None)
            return catalyst.trees.with_children(expression, replaced) if number is None else attributes[number]

        none = catalyst.jvm.scala.Option.apply(None)
        relation = plans.LocalRelation(catalyst.trees.seq(attributes), catalyst.trees.seq([]), False, none)
        plan = catalyst.trees.with_expressions(parsed, replaced).withNewChildren(catalyst.trees.seq([relation]))
        _analysed(catalyst, plan)
        return plan

    chosen: list[Any] = []
    plan = None
    for wanted in [literals, *([literal] for literal in literals)]:
        if plan is not None and len(chosen) == len(literals):
            break
        try:
            plan = with_columns([*chosen, *wanted])
            chosen += wanted
        except (PySparkException, Py4JError):
            continue  # it has to be a constant
    return plan


def _literals(expression: Any) -> list[Any]:
    if class_name(expression) == "Literal":
        return [] if str(expression.dataType().sql()) == "VOID" else [expression]
    return [found for child in items(expression.children()) for found in _literals(child)]
