"""Calls of an aggregate, from Catalyst's to those that operators maintain."""

from __future__ import annotations

from typing import Any

from relstate_dagster.jobs.plan.aggregates.registry import leaves_out_nulls, only_counts
from relstate_dagster.jobs.plan.nodes import AggCall, Field, NamedExpr
from relstate_dagster.jobs.planner.catalyst import Catalyst, type_ddl
from relstate_dagster.jobs.planner.decompose import DECOMPOSABLE, Argument, Part, decomposed
from relstate_dagster.jobs.planner.expression_facts import NotIncremental, check_deterministic, is_python_aggregate
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.input_columns import InputColumns
from relstate_dagster.jobs.planner.sessions import MergedSessions
from relstate_dagster.jobs.planner.trees import class_name, items
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.sql_type import sql_type

_REPLACEABLE = "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"


class AggregateCalls:
    """Collects the calls of one aggregate.

    Attributes
    ----------
    calls : what the aggregate computes, each different call once.
    means, results : what is computed out of these above the aggregate, the results out of the means too.
    """

    def __init__(self, catalyst: Catalyst, write: ExpressionWriter, inputs: InputColumns) -> None:
        self._catalyst = catalyst
        self._write = write
        self._inputs = inputs
        self._by_text: dict[str, str] = {}
        self.calls: list[AggCall] = []
        self.means: list[NamedExpr] = []
        self.results: list[NamedExpr] = []

    def column(self, call: Any) -> str:
        """The column of a call's result: of the aggregate, or computed above it."""
        call = self._replaced(call)
        function = call.aggregateFunction()
        kind = class_name(function)
        may_be = kind in DECOMPOSABLE and not call.isDistinct()
        parts = decomposed(kind, self._arguments(call)) if may_be else None
        if parts is None:
            return self._added(self._agg_call(call, f"_agg_{len(self.calls)}"))
        columns = [quoted(self._added(self._of_part(part))) for part in parts.parts]
        means = [quoted(self._computed(self.means, "_mean", mean)) for mean in parts.means(columns)]
        result = Argument(parts.result(columns, means), type_ddl(function.dataType()))
        return self._computed(self.results, "_result", result)

    def session(self, merged: MergedSessions, session: Any) -> str:
        """The column of a session window: the group's start and its rows' latest end."""
        column = self._inputs.computed(quoted(merged.end), merged.data_type)
        output = Field(f"_agg_{len(self.calls)}", merged.data_type, True)
        end = self._added(AggCall("max", (column,), False, f"max({quoted(column)})", output, (merged.data_type,)))
        text = f"named_struct('start', {quoted(merged.start)}, 'end', {quoted(end)})"
        return self._computed(self.results, "_result", Argument(text, type_ddl(session.dataType())))

    def _computed(self, of_kind: list[NamedExpr], kind: str, wanted: Argument) -> str:
        if wanted.sql not in self._by_text:
            name = self._by_text[wanted.sql] = f"{kind}_{len(of_kind)}"
            of_kind.append(NamedExpr(wanted.sql, Field(name, wanted.data_type, True)))
        return self._by_text[wanted.sql]

    def _added(self, call: AggCall) -> str:
        if call.sql not in self._by_text:
            self._by_text[call.sql] = call.output.name
            self.calls.append(call)
        return self._by_text[call.sql]

    def _replaced(self, call: Any) -> Any:
        """Spark's replacement of a call.

        ``count_if(c)`` by a count, ``bool_and(c)`` by min(c).
        """
        function = call.aggregateFunction()
        if is_python_aggregate(call) or not self._catalyst.trees.is_a(function, _REPLACEABLE):
            return call
        condition = _condition_of(call)
        children = [function.replacement(), *([] if condition is None else [condition])]
        return call.withNewChildren(self._catalyst.trees.seq(children))

    def _arguments(self, call: Any) -> list[Argument]:
        condition = _condition_of(call)
        arguments = []
        for child in items(call.aggregateFunction().children()):
            exact = child.child() if _is_cast_to_double(child) else child
            sql = self._write.sql(exact, self._inputs.names)
            arguments.append(Argument(sql if condition is None else self._where(condition, sql), type_ddl(exact.dataType())))
        return arguments

    def _where(self, condition: Any, value: str) -> str:
        return f"CASE WHEN {self._write.sql(condition, self._inputs.names)} THEN {value} END"

    def _of_part(self, part: Part) -> AggCall:
        column = self._inputs.computed(part.argument.sql, part.argument.data_type)
        output = Field(f"_agg_{len(self.calls)}", part.result_type, not only_counts(part.function))
        text = f"{part.function}({quoted(column)})"
        return AggCall(part.function, (column,), False, text, output, (part.argument.data_type,))

    def _agg_call(self, call: Any, output: str) -> AggCall:
        function = call.aggregateFunction()
        of_python = is_python_aggregate(call)
        name = str(function.name() if of_python else function.prettyName()).lower()
        arguments = list(items(function.children()))
        condition = _condition_of(call)
        result = Field(output, type_ddl(function.dataType()), bool(function.nullable()))
        columns = []
        if leaves_out_nulls(name) and len(arguments) == 1 and not of_python:
            # count(1) and count(*) count rows, so they read no column unless a FILTER makes them.
            constant = only_counts(name) and not arguments[0].nullable() and not call.isDistinct()
            if condition is not None:
                value = "1" if constant else self._write.sql(arguments[0], self._inputs.names)
                data_type = "int" if constant else type_ddl(arguments[0].dataType())
                columns = [self._inputs.computed(self._where(condition, value), data_type)]
            elif not constant:
                columns = [self._inputs.column(arguments[0], "_value")]
            inner = ", ".join(quoted(c) for c in columns) or "1"
            sql = f"{name}({'DISTINCT ' if call.isDistinct() else ''}{inner})"
        elif of_python:
            # The function has what name the user gave it, maybe that of one of Spark's, which are kept in other ways.
            name = f"python {name}"
            columns = [self._inputs.column(argument, "_value") for argument in arguments]
            sql = f"{quoted(str(function.name()))}({', '.join(quoted(c) for c in columns)})"
        elif class_name(function) == "PivotFirst":
            # Each group has one row for each value of the pivot column: PIVOT has grouped by it before.
            pivot, value = function.pivotColumn(), function.valueColumn()
            columns = [self._inputs.column(pivot, "_pivot"), self._inputs.column(value, "_value")]
            literals = self._write.element_texts(function.pivotColumnValues(), pivot.dataType())
            picked = [f"first({quoted(columns[1])}, true) FILTER (WHERE {quoted(columns[0])} <=> {v})" for v in literals]
            sql = f"array({', '.join(picked)})"
        else:
            over_columns, columns = self._inputs.call_over_columns(call, self._catalyst)
            sql = self._write.sql(over_columns, self._inputs.attribute_names)
        types = tuple(self._inputs.type_of(c) for c in columns)
        return AggCall(name, tuple(columns), bool(call.isDistinct()), sql, result, types)


def _condition_of(call: Any) -> Any | None:
    """The condition of a call's FILTER."""
    return call.filter().get() if call.filter().isDefined() else None


def _is_cast_to_double(expression: Any) -> bool:
    return class_name(expression) == "Cast" and sql_type(type_ddl(expression.dataType())).name == "double"


def check_python_aggregates(grouping: list[Any], calls: list[Any]) -> None:
    """Refuse Python aggregates that Spark refuses only at run time."""
    of_python = [call for call in calls if is_python_aggregate(call)]
    for call in of_python:
        function = call.aggregateFunction()
        name = str(function.name())
        check_deterministic(function, "PythonUDAF")
        if len(of_python) < len(calls):
            raise PlanError(
                f"Spark computes no Python aggregate ({name}) beside others than such; compute them in views of their own"
            )
        if call.isDistinct() or call.filter().isDefined():
            raise NotIncremental("python-aggregate", name, "DISTINCT and FILTER have no incremental form with it")
        if not grouping:
            raise NotIncremental("python-aggregate", name, "only Spark can compute its result over no rows")
