"""Checks, while planning, that epochs can keep and publish all column types."""

from __future__ import annotations

from pyspark.sql import types as T

from relstate_dagster.jobs.plan.explain import headline
from relstate_dagster.jobs.plan.nodes import Materialize, PlanNode, walk
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.row_encoding import parse_type, parts_of
from relstate_dagster.state_lib.slots import assign_slots
from relstate_dagster.state_lib.table_catalog import TableCatalog

_INTERVALS = (T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType)


def check_published_types(plan: Materialize) -> None:
    """Check the types of the view's columns and of its key.

    Raises
    ------
    PlanError : the view's Delta table cannot have a column, or cannot tell its rows apart by it.
    """
    for output in plan.output:
        if "`" in output.name:
            raise PlanError(f"the view has a column {output.name}: no MERGE of Delta's takes a backtick; give it another alias")
        data_type = plan.field_named(output.column).data_type
        try:
            problem = _problem(parse_type(data_type))
        except PlanError:
            problem = "Delta stores no such values; cast it to STRING, or to parts of it"
        if problem:
            raise PlanError(f"column {output.name} is of type {data_type}, which no view can have: {problem}")
    _allocate(plan)


def check_kept_types(plan: Materialize) -> None:
    """Look at the columns that operators below the view keep in state.

    Raises
    ------
    NotIncremental : an operator cannot keep a column; the whole query may still be recomputed.
    """
    for node in walk(plan.child):
        try:
            columns = _allocate(node)
        except PlanError as error:
            raise NotIncremental("type", headline(node), str(error)) from error
        for name, data_type in columns:
            if any(isinstance(t, T.VariantType) for t in parts_of(parse_type(data_type))):
                raise NotIncremental("type", headline(node), f"values of VARIANT, as in {name}, are not compared by Spark")


def _allocate(node: PlanNode) -> list[tuple[str, str]]:
    """Columns of a node's state tables, laid out to check their types."""
    schemas = list(infer_state_tables(node))
    TableCatalog(1).allocate(schemas)
    assign_slots(schemas)
    return [(column.name, column.data_type) for schema in schemas for column in schema.columns]


def _problem(data_type: T.DataType) -> str | None:
    for part in parts_of(data_type):
        if isinstance(part, _INTERVALS):
            return "Delta stores no intervals; cast it to STRING, or take a number out of it with extract"
        if isinstance(part, T.StringType) and part.collation != "UTF8_BINARY":
            return "Delta stores no collation; take it off with COLLATE UTF8_BINARY"
        if isinstance(part, T.VariantType):
            return "Spark does not compare VARIANT values, and changes of views are compared; write it with to_json"
    return None
