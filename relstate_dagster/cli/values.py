"""Values of rows as people and programs read them."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_BORDERS = 3


class Format(str, enum.Enum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"


def text_value(value: Any) -> str:
    """A value for people: NULL is NULL, and binary values are hexadecimal digits, as they are written in a key."""
    if value is None:
        return "NULL"
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value)


def json_value(value: Any) -> Any:
    """A value for JSON: decimals, dates and times are texts, binary values hexadecimal digits, NaN and infinities texts."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {text_value(k): json_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return text_value(value)


def row_text(row: Mapping[str, Any]) -> str:
    """A row in one line."""
    return ", ".join(f"{name}={text_value(value)}" for name, value in row.items())


def rows_shown(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> RenderableType:
    """Rows as a table; as a line each, wrapped, where that is too wide. An empty cell says nothing there."""
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
