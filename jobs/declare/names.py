"""Rules for names of views and sources.

Names become folders of a warehouse, Dagster asset keys and names in Spark's catalog. So only plain identifiers pass, before
anything is written. Spark itself created folders for ``a.b`` and for a Cyrillic name before it refused them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Final

from relstate_dagster.state_lib.errors import DeclarationError

MAX_NAME_LENGTH: Final = 128
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def as_declared(name: str, known: Iterable[str]) -> str:
    """Return the declared spelling of a name; the name itself if it is unknown."""
    known = known if isinstance(known, (Mapping, Set)) else tuple(known)
    if name in known:
        return name
    return next((other for other in known if other.lower() == name.lower()), name)


def check_name(name: str, what: str = "name", where: str = "") -> str:
    """Return `name` if it is a plain identifier.

    Parameters
    ----------
    name
        The name of a view or source.
    what
        What carries the name, for the message (``view``, ``source``).
    where
        File and line, for the message.

    Raises
    ------
    DeclarationError
        It is not ``[A-Za-z_][A-Za-z0-9_]*`` of at most 128 characters.
    """
    prefix = f"{where}: " if where else ""
    if not _PLAIN_NAME.fullmatch(name):
        raise DeclarationError(
            f"{prefix}{what} {name!r} is not a plain identifier: use ASCII letters, digits and underscores, "
            "not beginning with a digit."
        )
    if len(name) > MAX_NAME_LENGTH:
        raise DeclarationError(f"{prefix}{what} {name!r} has {len(name)} characters; the most is {MAX_NAME_LENGTH}.")
    return name
