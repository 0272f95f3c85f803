"""Times in a query: temporal filters, and flags for comparisons elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

from relstate_dagster.jobs.plan.nodes import Field, TemporalFilter, TemporalProject, TimeBound
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.expression_facts import expression_id, references, scalar_subqueries
from relstate_dagster.jobs.planner.expressions import Clock, ExpressionWriter
from relstate_dagster.jobs.planner.input_columns import InputColumns
from relstate_dagster.jobs.planner.lowered import Lowered, NameSpace, narrowed, select, where
from relstate_dagster.jobs.planner.temporal import TimeComparison, has_time, with_flags


class Times:
    """Puts the nodes that follow the time below what reads it.

    Parameters
    ----------
    write : of everything but times, which are written apart.
    """

    def __init__(self, catalyst: Catalyst, write: ExpressionWriter) -> None:
        self._catalyst = catalyst
        self._write = write
        self._write_time = ExpressionWriter(catalyst, Clock.INSTANT)

    @property
    def written(self) -> Any:
        """The times that were written, as :attr:`.ExpressionWriter.written`."""
        return self._write_time.written

    def are_in(self, expression: Any) -> bool:
        """Whether an expression reads the time."""
        return has_time(self._catalyst, expression)

    def apart(self, conditions: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        """Conditions that read the time, and the others."""
        timed: list[Any] = []
        timeless: list[Any] = []
        for condition in conditions:
            (timed if self.are_in(condition) else timeless).append(condition)
        return timed, timeless

    def passing(
        self,
        rows: Lowered,
        child: Lowered,
        timed: Sequence[Any],
        temporal: Sequence[TimeComparison],
        read: Set[int] | None,
    ) -> Lowered:
        """Rows for which conditions on the time hold, with the columns that are read.

        Parameters
        ----------
        rows : the child's rows with whatever the conditions read besides.
        timed, temporal : conditions that have the time somewhere within, and plain comparisons with one.
        read : the attributes that what is above reads; ``None`` for all of them.
        """
        kept = narrowed(child, read) if timed or temporal else child
        if timed:
            more = None if read is None else read | self._read_by([t.value for t in temporal])
            rows, timed = self.flagged(rows, timed, more)
            rows = where(self._write, rows, timed)
        if temporal:
            return self._filtered(rows, kept, temporal)
        return Lowered(select(rows.node, list(kept.node.column_names)), kept.names)

    def flagged(
        self, child: Lowered, expressions: Sequence[Any], read: Set[int] | None = frozenset()
    ) -> tuple[Lowered, list[Any]]:
        """The child with flags for comparisons with times, and expressions over them.

        Parameters
        ----------
        read : attributes that are read besides those in the expressions; ``None`` for all of them.
        """
        if not any(map(self.are_in, expressions)):
            return child, list(expressions)
        kept = narrowed(child, None if read is None else read | self._read_by(expressions))
        inputs, space = InputColumns(self._write, child, keep=kept.node.column_names), NameSpace(child.node.column_names)
        flags: dict[TimeBound, Any] = {}
        names = dict(kept.names)

        def flag(found: TimeComparison, expression: Any) -> Any:
            if not references(found.value) <= child.names.keys():
                return expression  # of the other side of a join
            bound = self._bound(inputs, found)
            if bound not in flags:
                flags[bound] = self._catalyst.trees.alias(expression, space.unique("_holds")).toAttribute()
                names[expression_id(flags[bound])] = str(flags[bound].name())
            return flags[bound]

        replaced = [with_flags(self._catalyst, expression, flag) for expression in expressions]
        if not flags:
            return child, replaced
        fields = tuple(Field(str(flag_name.name()), "boolean", True) for flag_name in flags.values())
        return Lowered(TemporalProject(inputs.node(), tuple(flags), fields), names), replaced

    def _filtered(self, child: Lowered, kept: Lowered, comparisons: Iterable[TimeComparison]) -> Lowered:
        """The child's rows filtered by time, with kept columns.

        The filter has the compared values beside them.
        """
        columns = list(kept.node.column_names)
        inputs = InputColumns(self._write, child, keep=columns)
        bounds = dict.fromkeys(self._bound(inputs, comparison) for comparison in comparisons)
        return Lowered(select(TemporalFilter(inputs.node(), tuple(bounds)), columns), kept.names)

    def _bound(self, inputs: InputColumns, found: TimeComparison) -> TimeBound:
        return TimeBound(inputs.column(found.value, "_time"), found.comparison, self._write_time.sql(found.time, {}))

    def _read_by(self, expressions: Iterable[Any]) -> set[int]:
        """Ids of the columns and of the scalar subqueries that expressions read."""
        found = set[int]()
        for expression in expressions:
            found |= references(expression)
            found |= {expression_id(subquery) for subquery in scalar_subqueries(self._catalyst, expression)}
        return found
