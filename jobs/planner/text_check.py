"""Reads every expression text of a plan back with Spark.

A text must analyse over the node's inputs and have the type it is planned with. An epoch runs from the texts alone, so
what Spark cannot read back must be found while there is a choice: in planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.explain import headline
from relstate_dagster.jobs.plan.nodes import (
    TODAY,
    Aggregate,
    Expand,
    Field,
    Filter,
    Join,
    PlanNode,
    Project,
    Temporal,
    Window,
    walk,
)
from relstate_dagster.jobs.planner.catalyst import first_line
from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from relstate_dagster.state_lib.sql_text import quoted


def check_texts(session: SparkSession, root: PlanNode) -> None:
    """Check all nodes; nothing is run.

    Raises
    ------
    NotIncremental : a text cannot be read back, or has another type than the plan says.
    """
    for node in walk(root):
        columns, group = _columns(node)
        if not columns:
            continue
        selected = ", ".join(f"{sql}, CAST(NULL AS {data_type})" for sql, data_type in columns)
        inputs = [f for child in node.children for f in child.schema]
        selected = selected.replace(TODAY, "current_date()")
        text = f"SELECT {selected} FROM {_no_rows(inputs)}" + (f" GROUP BY {', '.join(group)}" if group else "")
        try:
            types = [f.dataType.simpleString() for f in session.sql(text).schema]
        except PySparkException as error:
            raise NotIncremental("no-text", headline(node), f"Spark does not read it back: {first_line(error)}") from error
        for (sql, _), found, planned in zip(columns, types[::2], types[1::2], strict=True):
            if found != planned:
                raise NotIncremental("no-text", headline(node), f"{sql} reads back as {found} and not as {planned}")


def _columns(node: PlanNode) -> tuple[list[tuple[str, str]], list[str]]:  # noqa: PLR0911 - one return a kind of node
    """The texts of a node with their planned types, and the columns to group by."""
    match node:
        case Project() | Window():
            return [(e.sql, e.output.data_type) for e in node.expressions if not e.is_column], []
        case Filter():
            return [(node.condition, "boolean")], []
        case Temporal():
            return [(bound.sql_at("now()"), "boolean") for bound in node.bounds], []
        case Join() if node.residual is not None:
            return [(node.residual, "boolean")], []
        case Expand():
            return [
                (f"CAST({sql} AS {f.data_type})", f.data_type)
                for projection in node.projections
                for sql, f in zip(projection, node.columns, strict=True)
            ], []
        case Aggregate():
            # Every other column of the statement is a constant, so a call stands beside them without a GROUP BY as well.
            return [(c.sql, c.output.data_type) for c in node.calls], [quoted(g) for g in node.group]
        case _:
            return [], []


def _no_rows(fields: Sequence[Field] | Iterable[Field]) -> str:
    columns = ", ".join(f"CAST(NULL AS {f.data_type}) AS {quoted(f.name)}" for f in fields)
    return f"(SELECT {columns or '1'})"
