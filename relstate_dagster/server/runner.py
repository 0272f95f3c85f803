"""Runner at a server; without a server, this process goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relstate_dagster.server.asking import Asking
from relstate_dagster.server.channel import ServerGone
from relstate_dagster.server.client import Refused

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import (
        CheckReport,
        CompactReport,
        KeyReport,
        VacuumReport,
        VerifyReport,
        ViewReport,
    )


class ServerRunner(Asking):
    """The methods of :class:`.jobs.run.runner.EpochRunner`, done by a server.

    What a server that dies has left unfinished the process repairs by itself, as any run does: nothing is published twice.
    """

    def run(self, views: Sequence[str] | None = None, **options: Any) -> Iterator[ViewReport]:
        """Run one epoch, yielding a report as each view is published.

        Options are those of the runner.
        """
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
        """Drop views, each before its inputs; False without a server."""
        if self._server is None:
            return False
        try:
            list(self._server.ask(self._asked("drop_views", {"names": list(views)})))
        except (ServerGone, Refused) as why:
            self._go_on(why)
            return False
        return True
