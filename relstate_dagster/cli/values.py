"""Rows as people read them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_BORDERS = 3


class Format(str, enum.Enum):
    """Format of printed rows."""

    TABLE = "table"
    JSON = "json"


def row_text(row: Mapping[str, str]) -> str:
    """A row in one line."""
    return ", ".join(f"{name}={value}" for name, value in row.items())


def rows_shown(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> RenderableType:
    """Rows as a table, or as wrapped lines if too wide.

    An empty cell says nothing there.
    """
    widths = [max(len(name), *(len(row[n]) for row in rows), 0) for n, name in enumerate(columns)]
    if sum(w + _BORDERS for w in widths) + 1 <= width:
        table = Table(*map(escape, columns), header_style="bold")
        for row in rows:
            table.add_row(*map(escape, row))
        return table
    lines = []
    for row in rows:
        # Under the first column the sign of a change, which has no name.
        named = ", ".join(f"{name}={cell}" for name, cell in zip(columns, row, strict=True) if name and cell)
        sign = " ".join(cell for name, cell in zip(columns, row, strict=True) if not name)
        lines.append(hanging(f"{sign} {named}".strip(), 2))
    return Group(*lines)


def hanging(text: str, indent: int) -> RenderableType:
    """A line whose continuations are indented."""
    grid = Table.grid(padding=0)
    grid.add_column(width=indent, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(text[:indent]), Text(text[indent:]))
    return Padding(grid, 0)
