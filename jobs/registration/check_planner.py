"""Declared checks, analysed by Spark on a view's columns; nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.state import CatalogState
from relstate_dagster.jobs.declare.checks import Check, checks_of
from relstate_dagster.jobs.engine.functions import UserFunctions
from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.catalyst import Catalyst, first_line
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError
from relstate_dagster.state_lib.sql_text import quoted

_TIMES: Final = ("timestamp", "timestamp_ntz", "date")
_OTHER: Final = "_other"


def table_of(state: CatalogState, name: str) -> str | None:
    """The source or view that a check refers to; ``None`` if there is none."""
    return next((known for known in (*state.sources, *state.views) if known.lower() == name.lower()), None)


def check_declared(spark: SparkSession, functions: UserFunctions | None, view: ViewEntry) -> None:
    """Raise unless the checks of a view can be made on its columns.

    What they refer to is checked apart from it.

    Raises
    ------
    DeclarationError : a column is unknown, or Spark refuses a condition.
    """
    checks = checks_of(view.properties, f"view {view.name}")
    if not checks:
        return
    for check in checks:
        _check_columns(view, check)
    own = _relation(view)
    catalyst = Catalyst(spark, {view.name: own}, {}, functions)
    for check in checks:
        if check.condition:
            _check_condition(catalyst, view, check)
        elif check.kind == "unique":
            columns = ", ".join(map(quoted, check.columns))
            _analysed(catalyst, view, check, f"SELECT count(*) FROM {quoted(view.name)} GROUP BY {columns}")


def check_references(
    spark: SparkSession,
    state: CatalogState,
    view: ViewEntry,
    relations_of: Callable[[CatalogState, list[str]], Mapping[str, Relation]],
) -> None:
    """Raise unless the tables that checks refer to exist, with comparable columns.

    Raises
    ------
    DeclarationError : it is not.
    """
    for check in checks_of(view.properties, f"view {view.name}"):
        if check.kind != "references":
            continue
        name = table_of(state, check.table)
        relation = None if name is None else relations_of(state, [name]).get(name)
        if name is None or relation is None:
            known = ", ".join(sorted((*state.sources, *state.views))) or "none"
            raise DeclarationError(
                f"view {view.name}: check {check.name} refers to {check.table}, which is no source or materialized view of the "
                f"warehouse; there are {known}"
            )
        columns = {field.name.lower() for field in relation.columns}
        missing = [column for column in check.table_columns if column.lower() not in columns]
        if missing:
            raise DeclarationError(
                f"view {view.name}: check {check.name} refers to {', '.join(missing)}, which is no column of {name}; "
                f"there are {', '.join(field.name for field in relation.columns)}"
            )
        pairs = zip(check.columns, check.table_columns, strict=True)
        same = " AND ".join(f"{quoted(view.name)}.{quoted(a)} = {_OTHER}.{quoted(b)}" for a, b in pairs)
        catalyst = Catalyst(spark, {view.name: _relation(view), name: relation}, {})
        _analysed(
            catalyst, view, check, f"SELECT 1 FROM {quoted(view.name)} LEFT ANTI JOIN {quoted(name)} AS {_OTHER} ON {same}"
        )


def _relation(view: ViewEntry) -> Relation:
    fields = (view.plan.field_named(output.column) for output in view.plan.output)
    columns = (
        Field(output.name, field.data_type, field.nullable) for output, field in zip(view.plan.output, fields, strict=True)
    )
    return Relation(view.name, tuple(columns))


def _check_columns(view: ViewEntry, check: Check) -> None:
    types = {output.name.lower(): view.plan.field_named(output.column).data_type for output in view.plan.output}
    missing = [column for column in check.columns if column.lower() not in types]
    if missing:
        raise DeclarationError(
            f"view {view.name}: check {check.name} names {', '.join(missing)}, which is no column of it; there are "
            f"{', '.join(output.name for output in view.plan.output)}"
        )
    if check.kind == "fresh" and types[check.columns[0].lower()] not in _TIMES:
        raise DeclarationError(
            f"view {view.name}: check {check.name}: {check.columns[0]} is of type {types[check.columns[0].lower()]}, and no "
            f"{', '.join(name.upper() for name in _TIMES)}"
        )


def _check_condition(catalyst: Catalyst, view: ViewEntry, check: Check) -> None:
    """Analyse a condition as a filter of the view's rows."""
    try:
        # By itself first: what is no expression must not become a part of another text.
        catalyst.session._jsparkSession.sessionState().sqlParser().parseExpression(check.condition)
    except PySparkException as error:
        raise _refused(view, check, first_line(error)) from error
    # With an alias, or WHERE (a) would be one, with a list of columns.
    analysed = _analysed(catalyst, view, check, f"SELECT 1 FROM {quoted(view.name)} AS _ WHERE (\n{check.condition}\n)")
    if catalyst.has_subquery(analysed):
        raise _refused(view, check, "it has a subquery, and is to be about one row; write check.<name>.references")
    if not analysed.child().condition().deterministic():
        raise _refused(view, check, "it gives another result every time")


def _analysed(catalyst: Catalyst, view: ViewEntry, check: Check, query: str) -> Any:
    try:
        return catalyst.analyse(query)
    except RelstateError as error:
        raise _refused(view, check, str(error)) from error


def _refused(view: ViewEntry, check: Check, reason: str) -> DeclarationError:
    return DeclarationError(f"view {view.name}: check {check.name}, {check.described}: {reason}")
