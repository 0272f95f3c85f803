"""Proxy of an object at a server; without a server, the object itself works."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from relstate_dagster.jobs.declare import Project
from relstate_dagster.server.channel import ServerGone
from relstate_dagster.server.client import Refused, ServerAt
from relstate_dagster.server.json_values import from_plain, to_plain

T = TypeVar("T")


class Asking:
    """Methods of an object, done by a server.

    Parameters
    ----------
    agreed : the settings of this process, which the server compares with its own.
    project : declared before each request; None: views are taken as the warehouse knows them.
    by_itself : starts Spark here, and gives the object.
    tell : called with what is waited for, and with why the server does not do it.
    on_start : called with what begins.
    """

    def __init__(
        self,
        server: ServerAt,
        agreed: dict[str, str],
        project: Project | None,
        by_itself: Callable[[], object],
        tell: Callable[[str], None],
        on_start: Callable[[str], None] = lambda _said: None,
        wait_seconds: float | None = None,
    ) -> None:
        self._server: ServerAt | None = server
        self._request = {
            "settings": agreed,
            "project": to_plain(project),
            "wait_seconds": wait_seconds,
            "pid": os.getpid(),
        }
        self._by_itself = by_itself
        self._here: object | None = None
        self._tell = tell
        self._on_start = on_start

    def _one(self, method: str, kind: type[T], **arguments: Any) -> T:
        """Return what a method gives."""
        # To the end: who stops before is taken for one that has hung up.
        (found,) = list(self._each(method, kind, **arguments))
        return found

    def _each(self, method: str, kind: type[T], **arguments: Any) -> Iterator[T]:
        """Yield what a method gives, one or many."""
        if self._server is not None:
            try:
                for message in self._server.ask(self._asked(method, arguments)):
                    if "tell" in message:
                        self._tell(message["tell"])
                    elif "begins" in message:
                        self._on_start(message["begins"])
                    elif "item" in message:
                        yield from_plain(kind, message["item"])
                return
            except (ServerGone, Refused) as why:
                self._go_on(why)
        if self._here is None:
            self._here = self._by_itself()
        found = getattr(self._here, method)(**arguments)
        yield from [found] if isinstance(found, kind) else found

    def _asked(self, what: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**self._request, "do": what, "arguments": to_plain(arguments)}

    def _go_on(self, why: Exception) -> None:
        """Ask no server from now on."""
        reason = str(why) if isinstance(why, Refused) else "the server has ended before it was done"
        self._tell(f"{reason}; going on without it")
        self._server = None
