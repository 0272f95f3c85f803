"""Session windows: rows without a gap, by two window functions below the aggregate.

Spark gives each row a session of its own, from its time to the end of its gap, and merges those that meet while it aggregates,
outside of any plan. Here a row begins a session where its start is after all ends before it, and belongs to the last session
that has begun:

    before  = max(end)                                       over the earlier rows of the group, by start
    session = max(start, where before is NULL or is earlier) over the rows up to this one

The session's end is the latest end of its rows, an aggregate like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relstate_dagster.jobs.plan.nodes import Field, NamedExpr, SortKey, Window
from relstate_dagster.jobs.planner.catalyst import type_ddl
from relstate_dagster.jobs.planner.expression_facts import expression_id
from relstate_dagster.jobs.planner.expressions import ExpressionWriter
from relstate_dagster.jobs.planner.input_columns import InputColumns
from relstate_dagster.jobs.planner.lowered import Lowered, NameSpace, with_columns
from relstate_dagster.jobs.planner.trees import class_name
from relstate_dagster.jobs.planner.window_reach import ROWS_AFTER
from relstate_dagster.state_lib.sql_text import quoted

#: What Spark marks the column of a session window with.
_MARKER = "spark.sessionWindow"


@dataclass(frozen=True, slots=True)
class MergedSessions:
    """The rows of an aggregate with the session that each belongs to.

    Parameters
    ----------
    start : the column that has the start of a row's session.
    end : the column that has the end of the row's own gap.
    data_type : of both.
    """

    rows: Lowered
    start: str
    end: str
    data_type: str


def session_of(grouping: list[Any]) -> Any | None:
    """The session window among the grouping expressions of an aggregate."""
    marked = (e for e in grouping if class_name(e) == "AttributeReference" and e.metadata().contains(_MARKER))
    return next(marked, None)


def merged_sessions(write: ExpressionWriter, child: Lowered, grouping: list[Any], session: Any) -> MergedSessions:
    """Find the session of each row.

    ``grouping`` are the keys within which sessions are merged, and the session itself.
    """
    inputs = InputColumns(write, child, keep=child.node.column_names)
    values = [e.child() if class_name(e) == "Alias" else e for e in grouping if e is not session]
    keys = tuple(dict.fromkeys(inputs.column(value, "_group") for value in values))
    window = quoted(child.names[expression_id(session)])
    data_type = type_ddl(session.dataType().apply(0).dataType())
    own_start = inputs.computed(f"{window}.`start`", data_type)
    own_end = inputs.computed(f"{window}.`end`", data_type)
    node = inputs.node()
    space = NameSpace(node.column_names)
    before, begins, start = (Field(space.unique(name), data_type, True) for name in ("_before", "_begins", "_session"))
    order = (SortKey(own_start),)
    partition = f"PARTITION BY {', '.join(quoted(k) for k in keys)} " if keys else ""
    rows = f"{partition}ORDER BY {quoted(own_start)} ROWS BETWEEN UNBOUNDED PRECEDING AND"
    latest = NamedExpr(f"max({quoted(own_end)}) OVER ({rows} 1 PRECEDING)", before)
    first = f"{quoted(before.name)} IS NULL OR {quoted(own_start)} > {quoted(before.name)}"
    starts = NamedExpr(f"CASE WHEN {first} THEN {quoted(own_start)} END", begins)
    current = NamedExpr(f"max({quoted(begins.name)}) OVER ({rows} CURRENT ROW)", start)
    with_starts = with_columns(Window(node, keys, order, (latest,), ROWS_AFTER), [starts])
    merged = Window(with_starts, keys, order, (current,), ROWS_AFTER)
    return MergedSessions(Lowered(merged, child.names), start.name, own_end, data_type)
