"""A runner whose work a server does; where there is none any more, this process goes on by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from relstate_dagster.jobs.declare import Project
from relstate_dagster.server.channel import ServerGone
from relstate_dagster.server.client import Refused, ServerAt
from relstate_dagster.server.plain import from_plain, to_plain

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import (
        CheckReport,
        CompactReport,
        EpochRunner,
        KeyReport,
        VacuumReport,
        VerifyReport,
        ViewReport,
    )

T = TypeVar("T")


class ServerRunner:
    """The methods of :class:`.jobs.epoch.runner.EpochRunner`, done by a server.

    What a server that dies has left unfinished the process repairs by itself, as any run does: nothing is published twice.

    Parameters
    ----------
    agreed : the settings of this process, which the server compares with its own.
    project : declared before each request; None: views are taken as the warehouse knows them.
    by_itself : starts Spark here, and gives a runner.
    tell : called with what is waited for, and with why the server does not do it.
    on_start : called with what begins.
    """

    def __init__(
        self,
        server: ServerAt,
        agreed: dict[str, str],
        project: Project | None,
        by_itself: Callable[[], EpochRunner],
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
        self._here: EpochRunner | None = None
        self._tell = tell
        self._on_start = on_start

    def run(self, views: Sequence[str] | None = None, **options: Any) -> Iterator[ViewReport]:
        """Run one epoch, yielding a report as each view is published; options as of the runner's own."""
        from relstate_dagster.jobs.api import ViewReport  # noqa: PLC0415 - imports PySpark

        return self._each("run", ViewReport, views=views, **options)

    def check(self, views: Sequence[str] | None = None, names: Sequence[str] | None = None) -> list[CheckReport]:
        """Make the checks that views declare."""
        from relstate_dagster.jobs.api import CheckReport  # noqa: PLC0415 - as above

        return list(self._each("check", CheckReport, views=views, names=None if names is None else list(names)))

    def verify(self, views: Sequence[str] | None = None, *, sample: int | None = None) -> list[VerifyReport]:
        """Compare views with their queries run in full."""
        from relstate_dagster.jobs.api import VerifyReport  # noqa: PLC0415 - as above

        return list(self._each("verify", VerifyReport, views=views, sample=sample))

    def compact(self, views: Sequence[str] | None = None) -> Iterator[CompactReport]:
        """Compact the state of views."""
        from relstate_dagster.jobs.api import CompactReport  # noqa: PLC0415 - as above

        return self._each("compact", CompactReport, views=views)

    def vacuum(self, views: Sequence[str] | None = None, **options: Any) -> Iterator[VacuumReport]:
        """Delete files that no retained epoch needs; options as of the runner's own."""
        from relstate_dagster.jobs.api import VacuumReport  # noqa: PLC0415 - as above

        return self._each("vacuum", VacuumReport, views=views, **options)

    def stream_key_unique(self, versions: Mapping[str, int | None]) -> list[KeyReport]:
        """Count the keys of published views that occur more than once."""
        from relstate_dagster.jobs.api import KeyReport  # noqa: PLC0415 - as above

        return list(self._each("stream_key_unique", KeyReport, versions=dict(versions)))

    def has_dropped(self, views: Sequence[str]) -> bool:
        """Drop views, each before those that it reads; False where there is no server any more to do it."""
        if self._server is None:
            return False
        try:
            list(self._server.ask(self._asked("drop_views", {"names": list(views)})))
        except (ServerGone, Refused) as why:
            self._go_on(why)
            return False
        return True

    def _each(self, method: str, kind: type[T], **arguments: Any) -> Iterator[T]:
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
        yield from getattr(self._here_runner(), method)(**arguments)

    def _asked(self, what: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**self._request, "do": what, "arguments": to_plain(arguments)}

    def _go_on(self, why: Exception) -> None:
        """Ask no server from now on."""
        said = str(why) if isinstance(why, Refused) else "the server has ended before it was done"
        self._tell(f"{said}; going on without it")
        self._server = None

    def _here_runner(self) -> EpochRunner:
        if self._here is None:
            self._here = self._by_itself()
        return self._here
