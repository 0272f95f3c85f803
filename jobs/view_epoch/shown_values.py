"""Values of rows as people and programs read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, overload


def text_value(value: Any) -> str:
    """A value for people: NULL is NULL, binary values are hexadecimal digits."""
    if value is None:
        return "NULL"
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return str(value)


def json_value(value: Any) -> Any:
    """A value for JSON.

    Decimals, dates and times are texts, as are NaN and infinities, and binary values hexadecimal digits.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {text_value(k): json_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return text_value(value)


@overload
def shown_row(row: Mapping[str, Any], *, as_json: bool) -> dict[str, Any]: ...


@overload
def shown_row(row: Mapping[str, Any] | None, *, as_json: bool) -> dict[str, Any] | None: ...


def shown_row(row: Mapping[str, Any] | None, *, as_json: bool) -> dict[str, Any] | None:
    """A row of values as they are shown; ``None`` where there is no row."""
    return None if row is None else {name: json_value(value) if as_json else text_value(value) for name, value in row.items()}
