"""Group columns of an aggregate; maps become sorted entries."""

from __future__ import annotations

from typing import Any

from relstate_dagster.jobs.plan.nodes import Field, NamedExpr
from relstate_dagster.jobs.planner.catalyst import type_ddl
from relstate_dagster.jobs.planner.expression_facts import expression_id
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.input_columns import InputColumns
from relstate_dagster.jobs.planner.map_keys import entries_type, with_maps_again, with_sorted_maps
from relstate_dagster.jobs.planner.trees import class_name
from relstate_dagster.state_lib.row_encoding import parse_type
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.sql_type import sql_type


class GroupColumns:
    """Collects the expressions of one GROUP BY.

    Attributes
    ----------
    columns : what the aggregate groups by, each different column once.
    maps : maps, made above the aggregate of the entries that it groups by.
    names : the column of each expression by its id, of the aggregate or of ``maps``.
    """

    def __init__(self, write: ExpressionWriter, inputs: InputColumns) -> None:
        self._write = write
        self._inputs = inputs
        self.columns: list[str] = []
        self.maps: list[NamedExpr] = []
        self.names: dict[int, str] = {}

    def add(self, expression: Any) -> None:
        """Group by an expression of Catalyst's, too."""
        value = expression.child() if class_name(expression) == "Alias" else expression
        data_type = type_ddl(value.dataType())
        if sql_type(data_type).has_maps:
            entries = with_sorted_maps(self._write.sql(value, self._inputs.names), parse_type(data_type))
            column = self._inputs.computed(entries, entries_type(data_type), "_entries")
            output = Field(f"_map_of_{column}", data_type, True)
            of_entries = NamedExpr(with_maps_again(quoted(column), parse_type(data_type)), output)
            if of_entries not in self.maps:
                self.maps.append(of_entries)
            name = output.name
        else:
            wanted = str(expression.name()) if class_name(value) == "AttributeReference" else "_group"
            name = column = self._inputs.column(value, wanted)
        self.names[expression_id(expression)] = name
        if column not in self.columns:
            self.columns.append(column)
