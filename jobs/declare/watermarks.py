"""The property ``source.watermark``: the maximum lateness of a source's rows.

``'source.watermark' = 'ts - INTERVAL 10 MINUTES'`` says that rows more than ten minutes before the newest one are not
expected any more. It never changes the rows of a view. State of closed groups is dropped, and read again from the source if
a late row arrives nevertheless (:mod:`.jobs.operators.closed_groups`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from relstate_dagster.jobs.declare.durations import duration
from relstate_dagster.state_lib.errors import DeclarationError

WATERMARK: Final = "source.watermark"
_FORM: Final = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+))(?:\s*-\s*(.+))?", re.DOTALL)
_INTERVAL: Final = re.compile(r"INTERVAL\s+(?:'([^']+)'\s*(\w*)|(\d+)\s+(\w+))", re.IGNORECASE)
_TIMES: Final = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True)
class Watermark:
    """A column of a source, and how far behind its maximum rows may come.

    A length of time, or a number.
    """

    column: str
    delay: timedelta | int

    def after(self, greatest: Any) -> Any:
        """The value below which no row is expected, after a row with this maximum.

        ``None`` where the delay and the value do not go together.
        """
        try:
            if isinstance(self.delay, timedelta):
                return greatest - self.delay if isinstance(greatest, date | datetime) else None
            return greatest - self.delay if isinstance(greatest, int) else (None if self.delay else greatest)
        except OverflowError:
            return None

    def check_type(self, data_type: str, where: str) -> None:
        """Check that the column is of times, dates or whole numbers, as the delay.

        Raises
        ------
        DeclarationError
            It is not. ``where`` names the source.
        """
        # Definitions import this module, and must not import PySpark.
        from relstate_dagster.state_lib.sql_type import sql_type  # noqa: PLC0415

        found = sql_type(data_type)
        is_number = found.bits is not None
        if not is_number and found.name not in _TIMES:
            raise DeclarationError(
                f"{where}: '{WATERMARK}' is about column {self.column}, which is {data_type.upper()}; it needs a TIMESTAMP, "
                "TIMESTAMP_NTZ, DATE or a whole number."
            )
        if self.delay and isinstance(self.delay, timedelta) is is_number:
            wanted = "a number" if is_number else "an interval, as in INTERVAL 10 MINUTES"
            raise DeclarationError(f"{where}: '{WATERMARK}': from {self.column}, {data_type.upper()}, {wanted} is subtracted.")
        if found.name == "date" and isinstance(self.delay, timedelta) and self.delay % timedelta(days=1):
            raise DeclarationError(f"{where}: '{WATERMARK}': from {self.column}, a DATE, whole days are subtracted.")


def watermark_of(text: str, where: str) -> Watermark:
    """Read a watermark: a column, or a column minus a delay.

    As ``ts - INTERVAL 10 MINUTES``, ``day - INTERVAL '2 days'`` or ``number - 100``.

    Raises
    ------
    DeclarationError
        It is none of these. ``where`` names the source.
    """
    form = _FORM.fullmatch(text.strip())
    delay = None if form is None else _delay(form.group(3))
    if form is None or delay is None:
        raise DeclarationError(
            f"{where}: '{WATERMARK}' = {text!r} is a column less a delay, as in 'ts - INTERVAL 10 MINUTES', "
            "\"day - INTERVAL '2 days'\" or 'number - 100'."
        )
    quoted_name, name, _ = form.groups()
    return Watermark(name if quoted_name is None else quoted_name.replace("``", "`"), delay)


def _delay(text: str | None) -> timedelta | int | None:
    if text is None:
        return 0
    if text.strip().isdigit():
        return int(text)
    form = _INTERVAL.fullmatch(text.strip())
    if form is None:
        return None
    try:
        return duration(" ".join(part for part in form.groups() if part))
    except ValueError:
        return None
