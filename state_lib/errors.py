"""Every error this project raises on purpose.

One base class, few subclasses: a message says what was wrong, where, and what to do about it.
"""

from __future__ import annotations

import re
from typing import Final

#: delta-rs writes what caused an error below it, behind a coloured arrow.
_CAUSE: Final = re.compile(r"\s*(?:\x1b\[\d+m)?↳(?:\x1b\[0m)?\s*")


def with_causes(error: BaseException) -> str:
    """An error's text, with causes that delta-rs puts into lines of their own."""
    return _CAUSE.sub(": ", text_of(error)).strip()


def text_of(error: BaseException) -> str:
    """An error's text; empty if unavailable.

    Py4J asks the JVM for that of a Java error.
    """
    try:
        return str(error)
    except Exception:  # whatever says that the JVM has ended
        return ""


def first_line(error: BaseException) -> str:
    """First line of an error's text, with causes.

    The name of its type if it has none.
    """
    return with_causes(error).split("\n", 1)[0] or type(error).__name__


class RelstateError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback."""


class DeclarationError(RelstateError):
    """A view, source or project is declared wrongly (bad name, bad clause, cycle, unknown table)."""


class PlanError(RelstateError):
    """A query cannot be planned, or cannot be maintained under the refresh policy asked for."""


class SourceError(RelstateError):
    """A source cannot give the wanted changes.

    No change feed, vacuumed, overwritten, changed schema.
    """


class StateError(RelstateError):
    """A write contradicts the state.

    A key inserted twice, a missing row retracted, another epoch's data.
    """


class EpochError(RelstateError):
    """An epoch cannot run or complete.

    Another run holds the warehouse, a version is missing or contradictory.
    """


class WarehouseError(RelstateError):
    """The warehouse is unusable: newer format version, damaged catalog, path outside its folder."""


class AddressError(RelstateError):
    """A path or address cannot be used.

    An unknown scheme, or characters that Spark and delta-rs read differently.
    """


class EnvironmentProblem(RelstateError):
    """Java, jars or a Python package are missing or wrong, with the remedy."""
