"""Results and errors of statements as plain data: JSON, or texts of a table."""

from __future__ import annotations

import base64
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from relstate_dagster.jobs.script.session import Result
from relstate_dagster.jobs.view_epoch.error_messages import reason_of
from relstate_dagster.state_lib.errors import RelstateError


def rows_shown(result: Result, *, as_json: bool) -> list[list[Any]]:
    """The rows of a result; NULL is ``None``, and without JSON all else is text."""
    if as_json:
        return [[_plain(value) for value in row] for row in result.rows]
    return [[None if value is None else str(value) for value in row] for row in result.rows]


def failure_shown(error: Exception, *, as_json: bool) -> tuple[str, str]:
    """Class and message of an error.

    In JSON as Spark has it, else in one line.
    """
    # Behind it PySpark has the stack of the JVM.
    message = str(error).split("JVM stacktrace:", 1)[0].strip()
    if not as_json and not isinstance(error, RelstateError):
        message = reason_of(error)
    return type(error).__name__, message


def _plain(value: Any) -> Any:  # noqa: PLR0911 - one line a type
    """A collected value for JSON.

    Decimals, dates and times are strings, structs and maps objects.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124
    if isinstance(value, (Decimal, timedelta)):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if hasattr(value, "asDict"):
        return {k: _plain(v) for k, v in value.asDict().items()}
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else str(value)
