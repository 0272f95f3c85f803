"""Names and texts as they are written in SQL."""

from __future__ import annotations

from collections.abc import Mapping


def quoted(name: str) -> str:
    """A column name in backticks, for names with dots and other signs."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(value: str) -> str:
    """A text in quotes."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def property_list(properties: Mapping[str, str]) -> str:
    """Table properties, as they stand between the parentheses."""
    return ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())
