"""The user's own functions, by a callable that registers them in a session.

::

    # my_views/udfs.py, named as my_views.udfs:register
    def register(spark):
        spark.udf.register("initials", lambda name: name[:1], "string")

Views are planned, maintained and verified in sessions of their own, which share no registered functions with any other,
so the callable is called for each of them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from relstate_dagster.state_lib.errors import DeclarationError, first_line

#: The environment variable that names the callable, for messages.
VARIABLE = "RELSTATE_FUNCTIONS"


@dataclass(frozen=True, slots=True)
class UserFunctions:
    """The callable ``package.module:callable``, which takes a session and registers functions in it."""

    name: str

    def register(self, session: SparkSession) -> None:
        """Make the functions known to a session.

        Raises
        ------
        DeclarationError : the callable is not to be found, or fails.
        """
        callable_ = self.load()
        try:
            callable_(session)
        except Exception as error:
            raise DeclarationError(
                f"functions {self.name}: the callable failed for a new session: {_said(error)}; it is called with each session "
                "that plans or runs views"
            ) from error

    def load(self) -> Callable[[SparkSession], Any]:
        """Import the callable.

        Raises
        ------
        DeclarationError : its name is not of the right form, the module cannot be imported, or has no such callable.
        """
        module_name, _, attribute = self.name.partition(":")
        if not module_name or not attribute.isidentifier():
            raise DeclarationError(f"functions {self.name!r}: name a callable as package.module:callable ({VARIABLE})")
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise DeclarationError(
                f"functions {self.name}: module {module_name} cannot be imported: {_said(error)}; install its package, or put "
                "its folder on PYTHONPATH"
            ) from error
        found = getattr(module, attribute, None)
        if not callable(found):
            raise DeclarationError(
                f"functions {self.name}: module {module_name} has no callable {attribute}; define {attribute}(spark), which "
                "calls spark.udf.register(...)"
            )
        _travels_by_value(module)
        register: Callable[[SparkSession], Any] = found
        return register


def _travels_by_value(module: ModuleType) -> None:
    """Send the module's functions as a whole to workers that cannot import it."""
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def not_registered(functions: UserFunctions | None) -> str:
    """The remedy for an unregistered function, as the end of a message."""
    if functions is None:
        return f"no callable registers; set {VARIABLE}=package.module:callable to one that does"
    return f"{functions.name} does not register; register it there, in the session it is called with"


def called_in(texts: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Functions that query texts call, by their words: a name before a parenthesis."""
    text = "\n".join(texts)
    called = {n for n in names if re.search(rf"(?i)(?<!\w)`?{re.escape(n)}`?\s*\(", text)}
    return tuple(sorted(called))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
