"""Columns of type CHAR, which Spark keeps as STRING and pads.

It notes their type in their metadata.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import types as T

#: What the metadata of a column have of its type, where that is text of a certain length, or has some in it.
_NOTE: Final = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR: Final = re.compile(r"\bchar\(", re.IGNORECASE)


def char_type(field: T.StructField) -> str | None:
    """Declared type of a column that is or contains CHAR; else ``None``."""
    note = (field.metadata or {}).get(_NOTE)
    return str(note) if note is not None and _CHAR.search(str(note)) else None


def char_length(field: T.StructField) -> int:
    """The length of a column that is CHAR."""
    return int(re.sub(r"\D", "", str(char_type(field))))


def char_metadata(declared: str | None) -> dict[str, str]:
    """The metadata by which Spark pads a column, and compares it, as :func:`char_type` has it."""
    return {} if declared is None else {_NOTE: declared}
