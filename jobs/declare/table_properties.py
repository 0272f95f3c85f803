"""Properties of a view's published Delta table, out of its ``TBLPROPERTIES``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from relstate_dagster.jobs.declare.model import OURS
from relstate_dagster.state_lib.errors import DeclarationError

DELETION_VECTORS: Final = "delta.enableDeletionVectors"
_TRUTH: Final = (re.compile("true|false"), "true or false")
_TIME: Final = (re.compile(r"(interval )?\d+ (hour|day|week)s?"), "a length of time, as in 'interval 30 days'")
#: Those of Delta that change neither what a row is nor who may commit. With others Delta may refuse what epochs write, or write
#: by itself, or the driver cannot write to the table.
_OF_DELTA: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    DELETION_VECTORS: _TRUTH,
    "delta.enableChangeDataFeed": _TRUTH,
    "delta.checkpointInterval": (re.compile(r"[1-9]\d{0,8}"), "a number of commits"),
    "delta.dataSkippingNumIndexedCols": (re.compile(r"-1|\d{1,8}"), "a number of columns, or -1 for all"),
    "delta.deletedFileRetentionDuration": _TIME,
    "delta.logRetentionDuration": _TIME,
}
#: Names that Spark takes for something else.
_OF_SPARK: Final = ("collation", "comment", "external", "is_managed_location", "location", "owner", "provider")
_BY_LOWER_CASE: Final = {name.lower(): name for name in _OF_DELTA}


def table_properties(properties: Mapping[str, str], where: str | None = None) -> dict[str, str]:
    """The properties of a view that are its table's, Delta's own written as Delta does.

    Parameters
    ----------
    where : names the view, for messages. Without it, what a table cannot have is left out: an earlier version has taken it.

    Raises
    ------
    DeclarationError
        A property that a view's table cannot have, or a value that it cannot have.
    """
    found: dict[str, str] = {}
    for key, value in properties.items():
        if key.startswith(OURS):
            continue
        name = _BY_LOWER_CASE.get(key.lower(), key)
        text = value.strip().lower() if name in _OF_DELTA else value
        problem = _problem(name, text)
        if problem is None:
            found[name] = f"interval {text}" if _OF_DELTA.get(name) is _TIME and not text.startswith("interval") else text
        elif where is not None:
            raise DeclarationError(f"{where}: property {key!r} = {value!r}: {problem}")
    return found


def _problem(name: str, text: str) -> str | None:
    if name in _OF_DELTA:
        pattern, meaning = _OF_DELTA[name]
        return None if pattern.fullmatch(text) else f"it is {meaning}."
    if name.lower().startswith("delta."):
        return f"it is none of those that the table of a view can have, which are {', '.join(_OF_DELTA)}."
    return "Spark takes its name for something else." if name.lower() in _OF_SPARK else None
