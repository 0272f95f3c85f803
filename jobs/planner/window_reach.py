"""Reach of a changed row in a window: other rows with new results."""

from __future__ import annotations

from typing import Any, Final

from relstate_dagster.jobs.plan.nodes import Reach
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.trees import class_name

EVERY_ROW: Final = Reach(None, None)
ROWS_AFTER: Final = Reach(0, None)
#: Functions of the rows before a row. Spark gives them the frame up to the current row.
OF_ROWS_BEFORE: Final = frozenset({"RowNumber", "Rank", "DenseRank"})
#: Functions of one row at a distance.
OFFSETS: Final = frozenset({"Lag", "Lead"})
#: Functions of the number of rows in a partition.
SIZE_BASED: Final = "org.apache.spark.sql.catalyst.expressions.SizeBasedWindowFunction"


def reach_of(catalyst: Catalyst, windows: list[Any]) -> Reach:
    """The reach of window expressions together.

    Parameters
    ----------
    windows : Catalyst's WindowExpressions, analyzed.
    """
    found = Reach(0, 0)
    for window in windows:
        found = found.and_of(_of_window(catalyst, window))
    return found


def _of_window(catalyst: Catalyst, window: Any) -> Reach:
    function, frame = window.windowFunction(), window.windowSpec().frameSpecification()
    kind = class_name(function)
    if class_name(frame) != "SpecifiedWindowFrame" or catalyst.trees.is_a(function, SIZE_BASED):
        return EVERY_ROW
    lower, upper = frame.lower(), frame.upper()
    is_of_rows = class_name(frame.frameType()) == "RowFrame"
    if kind in OFFSETS and function.ignoreNulls():
        # It looks for a row with a value, as far as it takes.
        return Reach(0, None) if kind == "Lag" else Reach(None, 0)
    if is_of_rows or kind in OF_ROWS_BEFORE:
        return Reach(_rows(upper, 1), _rows(lower, -1))
    if class_name(upper) == "CurrentRow":
        return Reach(0, None, peers=True)
    if class_name(lower) == "CurrentRow":
        return Reach(None, 0, peers=True)
    return EVERY_ROW


def _rows(bound: Any, sign: int) -> int | None:
    """Rows from the current one to a bound of its frame; ``None`` without bound.

    Parameters
    ----------
    sign : 1 for an upper bound, -1 for a lower one. A frame that ends before the current row counts as one up to it.
    """
    if class_name(bound).startswith("Unbounded"):
        return None
    if class_name(bound) == "CurrentRow":
        return 0
    return max(0, sign * int(bound.eval(None)))
