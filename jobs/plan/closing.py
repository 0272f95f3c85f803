"""Groups of an aggregate that are closed by a watermark of its source.

So it is where a group column is that column, cut off: a window of time, its day, its hour. The rows of such a group are
those of a range of the source, and can be read there again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from relstate_dagster.jobs.plan.nodes import Aggregate, Expand, Filter, Join, PlanNode, Project, Scan, walk
from relstate_dagster.state_lib.constants import ROW_ID
from relstate_dagster.state_lib.sql_text import quoted


@dataclass(frozen=True, slots=True)
class Span:
    """Range of a column within a group, as SQL over the group column.

    Parameters
    ----------
    column : the one that is cut off.
    lower, upper : the ends. Rows have ``upper`` itself only where it ``is_included``.
    """

    column: str
    lower: str
    upper: str
    is_included: bool = False


@dataclass(frozen=True, slots=True)
class Closing:
    """The column of a source that closes groups, and its range within a group."""

    relation: str
    span: Span

    @property
    def column(self) -> str:
        """The column of the source."""
        return self.span.column


def closings(plan: PlanNode, columns: Mapping[str, Iterable[str]]) -> dict[Aggregate, list[Closing]]:
    """Aggregates whose state can be dropped and read again, with their closings.

    Parameters
    ----------
    columns : those of each source that say how far it has come.
    """
    wanted = {name: {column.lower() for column in of_source} for name, of_source in columns.items()}
    nodes = list(walk(plan))
    # Joins look these up in the state that the aggregate has.
    sides = [
        side
        for join in nodes
        if isinstance(join, Join)
        for side, in_place in ((join.left, join.left_in_place), (join.right, join.right_in_place))
        if in_place
    ]
    looked_up = {node for side in sides for node in walk(side)}
    found: dict[Aggregate, list[Closing]] = {}
    for node in nodes:
        if isinstance(node, Aggregate) and node not in looked_up and _can_be_read_again(node):
            ways = [way for group in node.group for way in _closing(node, group)]
            ways = [way for way in ways if way.column.lower() in wanted.get(way.relation, ())]
            if ways:
                found[node] = ways
    return found


def _can_be_read_again(node: Aggregate) -> bool:
    """Whether rows read again are those that came.

    Row ids are given once, and maps cannot be compared.
    """
    rows = node.child.schema
    return not node.is_of_changelog and not any(f.name == ROW_ID or f.type.has_maps for f in rows)


def _closing(node: Aggregate, group: str) -> list[Closing]:
    column, span, below = group, None, node.child
    while not isinstance(below, Scan):
        if isinstance(below, Project):
            passed_on = below.passed_on
            if column in passed_on:
                column = passed_on[column]
            elif span is None:
                computed = next(e for e in below.expressions if e.output.name == column)
                span = _span(computed.sql, group, below.child)
                column = "" if span is None else span.column
            else:
                return []
        elif isinstance(below, Expand) and span is None:
            place = below.column_names.index(column)
            spans = {_span(projection[place], group, below.child) for projection in below.projections}
            span = spans.pop() if len(spans) == 1 else None
            column = "" if span is None else span.column
        elif not isinstance(below, Filter):
            return []
        if not column:
            return []
        (below,) = below.children
    at = quoted(group)
    return [Closing(below.relation, Span(column, at, at, True) if span is None else Span(column, span.lower, span.upper))]


# -- what cuts a column off -----------------------------------------------------------------------------------------------

_NAME: Final = r"(`(?:[^`]|``)+`|\w+)"
_CAST: Final = rf"(?:{_NAME}|CAST\({_NAME} AS (?:TIMESTAMP|TIMESTAMP_NTZ|DATE)\))"
_DATE: Final = re.compile(rf"CAST\({_NAME} AS DATE\)|to_date\({_NAME}\)")
_DATE_TRUNC: Final = re.compile(rf"date_trunc\('(\w+)', {_CAST}\)", re.IGNORECASE)
_TRUNC: Final = re.compile(rf"trunc\({_CAST}, '(\w+)'\)", re.IGNORECASE)
#: A window's start, up to where it says how far before the start of a slide it begins, and how it ends.
_WINDOW: Final = re.compile(
    rf"named_struct\('start', timestamp_micros\(\(\(unix_micros\({_NAME}\) - CASE WHEN "
    rf"\(\(\(unix_micros\({_NAME}\) - (-?\d+)L\) % (\d+)L\).* - (\d+)L\)\), 'end', .* \+ (\d+)L\)\)\)"
)
_UNITS: Final = {
    **dict.fromkeys(("year", "yyyy", "yy"), "1 YEAR"),
    "quarter": "3 MONTH",
    **dict.fromkeys(("month", "mm", "mon"), "1 MONTH"),
    "week": "7 DAY",
    **dict.fromkeys(("day", "dd"), "1 DAY"),
    "hour": "1 HOUR",
    "minute": "1 MINUTE",
    "second": "1 SECOND",
}


def _span(sql: str, group: str, below: PlanNode) -> Span | None:
    """The range that an expression truncates a column to; else ``None``."""
    at = quoted(group)
    if date := _DATE.fullmatch(sql):
        return _of(date.group(1) or date.group(2), at, f"date_add({at}, 1)", below)
    if cut := _DATE_TRUNC.fullmatch(sql):
        unit, name = cut.group(1), cut.group(2) or cut.group(3)
    elif cut := _TRUNC.fullmatch(sql):
        unit, name = cut.group(3), cut.group(1) or cut.group(2)
    elif window := _window_column(sql):
        return _of(window, f"{at}.start", f"{at}.end", below)
    else:
        return None
    length = _UNITS.get(unit.lower())
    return None if length is None else _of(name, at, f"({at} + INTERVAL {length})", below)


def _of(name: str, lower: str, upper: str, below: PlanNode) -> Span | None:
    plain = {spelling: column for column in below.column_names for spelling in (column, quoted(column))}
    return Span(plain[name], lower, upper) if name in plain else None


def _window_column(sql: str) -> str | None:
    """The column of a time window as Spark writes it; else ``None``.

    All of its rows lie within the window.
    """
    form = _WINDOW.fullmatch(sql)
    if form is None:
        return None
    name, _, offset, slide, before, size = form.groups()
    past = f"((unix_micros({name}) - {offset}L) % {slide}L)"
    begins = f"((unix_micros({name}) - CASE WHEN ({past} < 0L) THEN ({past} + {slide}L) ELSE {past} END) - {before}L)"
    written = f"named_struct('start', timestamp_micros({begins}), 'end', timestamp_micros(({begins} + {size}L)))"
    return name if sql == written and int(before) + int(slide) <= int(size) else None
