"""Answers of a server; without a server, this process computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relstate_dagster.server.asking import Asking

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import ViewDiff, Why


class ServerAnswers(Asking):
    """The methods of :class:`.jobs.inspect.answers.Answers`, done by a server."""

    def why(self, view: str, key: str, *, epoch: int | None, limit: int, as_json: bool) -> Why:
        """Return what makes a row of a view, and what has changed it."""
        from relstate_dagster.jobs.api import Why  # noqa: PLC0415 - imports PySpark

        return self._one("why", Why, view=view, key=key, epoch=epoch, limit=limit, as_json=as_json)

    def diff(self, view: str, since: int | None, until: int | None, *, limit: int, as_json: bool) -> ViewDiff:
        """Return what two epochs of a view differ by."""
        from relstate_dagster.jobs.api import ViewDiff  # noqa: PLC0415 - as above

        return self._one("diff", ViewDiff, view=view, since=since, until=until, limit=limit, as_json=as_json)
